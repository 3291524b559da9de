"""What stands before the service: who may come in, how much, for how long; and what all see.

It is plain ASGI, around everything else, so that every response has the same headers, and every
error the same form, whoever made it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal

from starlette.requests import ClientDisconnect

from pseudoquery.errors import IndexFolderError, ModelError
from pseudoquery.service.errors import RETRY, Refused, refusal
from pseudoquery.service.metrics import Watch, log, log_failure
from pseudoquery.service.settings import ServiceSettings, is_loopback

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = ("application/json",)
LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
BULK = ("POST", "/documents")
BODIES = {
    ("POST", "/search"): JSON,
    ("POST", "/explain"): JSON,
    ("POST", "/compare"): JSON,
    ("POST", "/map"): JSON,
    ("PUT", "/documents/{id}"): JSON,
    BULK: LINES,
}
PAGE = ("/", "/page/{name}")
"""The page needs no token: it holds nothing of the index, and asks the user for one."""
OPEN = ("/healthz", "/readyz", "/openapi.json", *PAGE)
ASKING = ("/search", "/explain", "/compare", "/map")
ROUTES = (*OPEN, "/metrics", "/info", *ASKING, "/documents")
READING = tuple(("POST", route) for route in ASKING)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")

SECURITY = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_SECURITY = [(name.encode(), value.encode()) for name, value in SECURITY.items()]
DRAINED_BYTES, DRAINED_SECONDS = 8 << 20, 2.0
"""How much of a refused request is still read: a client that sends hears nothing before."""
CLIENT_WENT_AWAY = 499


class Guard:
    """Middleware that refuses what the settings do not allow, counts, and logs."""

    def __init__(self, app: App, settings: ServiceSettings, watch: Watch) -> None:
        self._app = app
        self._settings = settings
        self._watch = watch
        self._in_progress = 0
        watch.in_progress.set_function(lambda: self._in_progress)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._settings)
        start = time.perf_counter()
        try:
            await self._answer(exchange)
        finally:
            self._note(exchange, time.perf_counter() - start)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            if await self._answer_preflight(exchange):
                return
            self._admit(exchange)
            with self._place(exchange):
                # A bulk request may take as long as it likes, if it keeps coming.
                seconds = None if exchange.is_bulk else self._settings.seconds
                async with asyncio.timeout(seconds):
                    await self._app(exchange.scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            exchange.status = CLIENT_WENT_AWAY
        except TimeoutError:
            await exchange.refuse(exchange.too_slow())
        except Exception as error:  # whatever it is, the client gets an answer, and the log a line
            refused = refusal(error)
            if refused.status_code >= 500:
                # Only an error about the index or its model is known to quote no document.
                known = isinstance(error, IndexFolderError | ModelError)
                reason = str(error) if known else ""
                log_failure("failure", error, route=exchange.route, reason=reason)
            await exchange.refuse(refused)

    @contextmanager
    def _place(self, exchange: Exchange) -> Iterator[None]:
        """Take one of the places for requests in progress; who asks after health needs none."""
        taken = int(exchange.route not in OPEN)
        self._in_progress += taken
        try:
            yield
        finally:
            self._in_progress -= taken

    async def _answer_preflight(self, exchange: Exchange) -> bool:
        """Answer a browser that asks whether a page of another origin may use the service."""
        if exchange.method != "OPTIONS" or not exchange.header("access-control-request-method"):
            return False
        if not exchange.cross_origin:
            raise Refused(403, "pages of this origin may not use the service.")
        headers = {
            "access-control-allow-methods": "GET, POST, PUT, DELETE",
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": "600",
        }
        await exchange.answer(204, b"", headers)
        return True

    def _admit(self, exchange: Exchange) -> None:
        """Check everything that can be known before the body is read."""
        if exchange.route in OPEN:
            return
        settings = self._settings
        if not settings.protected and not is_loopback(exchange.host):
            # A web page may have given its own name this machine's address (DNS rebinding).
            raise Refused(421, "without tokens, the service answers only to localhost.")
        _authorize(exchange, settings)
        _check_body_kind(exchange)
        announced = exchange.header("content-length")
        if announced.isdecimal() and int(announced) > exchange.limit:
            raise exchange.too_large()
        if self._in_progress >= settings.concurrency:
            raise Refused(429, "too many requests at once; try again in a moment.", headers=RETRY)

    def _note(self, exchange: Exchange, seconds: float) -> None:
        method = exchange.method if exchange.method in METHODS else "other"
        self._watch.requests.labels(method, exchange.route, exchange.status).inc()
        self._watch.seconds.labels(exchange.route).observe(seconds)
        log(
            "request",
            method=method,
            route=exchange.route,
            status=exchange.status,
            milliseconds=round(seconds * 1000, 1),
            bytes_in=exchange.received,
            bytes_out=exchange.sent,
        )


class Exchange:
    """One request and its response: what has come in, and what has gone out."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, settings: ServiceSettings
    ) -> None:
        self.scope = scope
        self.method = str(scope["method"])
        self.route = route_of(scope["path"].removeprefix(scope.get("root_path", "")))
        self.status = 0
        self.received = self.sent = 0
        self._receive, self._send, self._settings = receive, send, settings
        self._whole = False
        self._headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }

    def header(self, name: str) -> str:
        """Return a header of the request, or nothing."""
        return self._headers.get(name, "")

    @property
    def is_bulk(self) -> bool:
        """Whether the body is read as it comes."""
        return (self.method, self.route) == BULK

    @property
    def limit(self) -> int:
        """How many bytes the body may have."""
        return self._settings.bulk_bytes if self.is_bulk else self._settings.body_bytes

    @property
    def host(self) -> str:
        """The name by which the client knows the service, without a port."""
        host = self.header("host")
        return host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]

    @property
    def cross_origin(self) -> str:
        """The allowed origin that the request comes from, if it is one."""
        origin, allowed = self.header("origin"), self._settings.cors_origins
        return origin if origin and (origin in allowed or "*" in allowed) else ""

    async def receive(self) -> Message:
        """Read on, as far as the limits allow."""
        try:
            # The first message is there at once if there is no body. Not wait_for(), which in
            # Python 3.11 loses a cancellation that comes together with the message.
            async with asyncio.timeout(self._settings.seconds):
                message = await self._receive()
        except TimeoutError:
            raise self.too_slow() from None
        self.received += len(message.get("body", b""))
        self._whole = message["type"] != "http.request" or not message.get("more_body")
        if self.received > self.limit:
            raise self.too_large()
        return message

    async def send(self, message: Message) -> None:
        """Write a part of the response; its beginning gets the headers that all have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.status >= 400:
                await self._drain()
            self._add_headers(message)
        self.sent += len(message.get("body", b""))
        await self._send(message)

    async def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        """Write a whole response."""
        if content:
            headers = {"content-type": "application/json", **headers}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        raw.append((b"content-length", str(len(content)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": content})

    async def refuse(self, refused: Refused) -> None:
        """Answer with an error, unless an answer has begun."""
        if not self.status:
            await self.answer(refused.status_code, refused.content(), dict(refused.headers or {}))

    def too_large(self) -> Refused:
        """Say that the body is larger than allowed."""
        return Refused(413, f"the body is larger than {self.limit:,} bytes, which is the limit.")

    def too_slow(self) -> Refused:
        """Say who took too long: the client to send, or the service to answer."""
        seconds = f"{self._settings.seconds:g} seconds"
        if not self._whole:
            return Refused(408, f"nothing more of the request came within {seconds}.")
        return Refused(
            504,
            f"there was no answer within {seconds}; a change may or may not have been made.",
            headers=RETRY,
        )

    async def _drain(self) -> None:
        """Read what a client still sends, for a while: else it may miss why it is refused."""
        if self.header("expect"):
            return  # it waits to be told whether to send
        left = DRAINED_BYTES
        try:
            async with asyncio.timeout(DRAINED_SECONDS):
                while not self._whole and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self._whole = message["type"] != "http.request" or not message.get("more_body")
        except TimeoutError:
            return

    def _add_headers(self, message: Message) -> None:
        headers = list(message.get("headers", []))
        there = {name.lower() for name, _ in headers}
        headers += [one for one in _SECURITY if one[0] not in there]
        if self._settings.cors_origins:
            headers.append((b"vary", b"Origin"))
            if origin := self.cross_origin:
                headers.append((b"access-control-allow-origin", origin.encode("latin-1")))
                headers.append((b"access-control-expose-headers", b"retry-after"))
        message["headers"] = headers


def route_of(path: str) -> str:
    """Name the route of a path, without the id in it: for rules, metrics and the log."""
    if path.startswith("/documents/"):
        return "/documents/{id}"
    if path.startswith("/page/"):
        return "/page/{name}"
    return path if path in ROUTES else "other"


def needed(method: str, route: str) -> Literal["read", "write"]:
    """Say what a request must be allowed to do; anything unknown counts as a change."""
    return "read" if method == "GET" or (method, route) in READING else "write"


def _authorize(exchange: Exchange, settings: ServiceSettings) -> None:
    granted = settings.access(exchange.header("authorization"))
    if granted == "none":
        raise Refused(
            401,
            "send a token that the service knows, as the header Authorization: Bearer TOKEN.",
            headers={"www-authenticate": "Bearer"},
        )
    if granted == "read" and needed(exchange.method, exchange.route) == "write":
        raise Refused(403, "this token may read; to change documents takes a write token.")


def _check_body_kind(exchange: Exchange) -> None:
    """Insist on the media type: a page of another origin can't send these unasked."""
    kinds = BODIES.get((exchange.method, exchange.route))
    if kinds is None:
        return
    media_type = exchange.header("content-type").partition(";")[0].strip().lower()
    if media_type not in kinds:
        raise Refused(415, f"send the header Content-Type: {kinds[0]}.")
    if exchange.header("content-encoding") not in ("", "identity"):
        raise Refused(415, "send the body as it is, without a Content-Encoding.")
