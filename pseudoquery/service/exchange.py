"""One request and its response, watched: what was read, what was sent, how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pseudoquery.service.errors import RETRY, Refused
from pseudoquery.service.settings import ServiceSettings

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
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
CLIENT_WENT_AWAY = 499
BULK = ("POST", "/documents")
PAGE = ("/", "/page/{name}")
"""The page needs no token: it holds nothing of the index, and asks the user for one."""
OPEN = ("/healthz", "/readyz", "/openapi.json", *PAGE)
ASKING = ("/search", "/explain", "/compare", "/map")
ROUTES = (*OPEN, "/metrics", "/info", *ASKING, "/documents")
DRAINED_BYTES, DRAINED_SECONDS = 8 << 20, 2.0
"""How much of a refused request is still read: a client that sends hears nothing before."""


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
