"""What stands before the service: who may come in, how much, for how long; and what all see.

It is plain ASGI, around everything else, so that every response has the same headers, and every
error the same form, whoever made it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from starlette.requests import ClientDisconnect

from pseudoquery.errors import IndexFolderError, ModelError
from pseudoquery.service.errors import RETRY, Refused, refusal
from pseudoquery.service.exchange import (
    ASKING,
    BULK,
    CLIENT_WENT_AWAY,
    OPEN,
    App,
    Exchange,
    Receive,
    Scope,
    Send,
)
from pseudoquery.service.logs import log, log_failure
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.settings import ServiceSettings, is_loopback

JSON = ("application/json",)
LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
BODIES = {
    ("POST", "/search"): JSON,
    ("POST", "/explain"): JSON,
    ("POST", "/compare"): JSON,
    ("POST", "/map"): JSON,
    ("PUT", "/documents/{id}"): JSON,
    BULK: LINES,
}
READING = tuple(("POST", route) for route in ASKING)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")


class Guard:
    """Middleware that refuses what the settings do not allow, counts, and logs."""

    def __init__(self, app: App, settings: ServiceSettings, watch: Metrics) -> None:
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


def required_access(method: str, route: str) -> Literal["read", "write"]:
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
    if granted == "read" and required_access(exchange.method, exchange.route) == "write":
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
