"""The innermost layer: it refuses what the settings do not allow, and words every error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from pseudoquery.errors import IndexFolderError, ModelError
from pseudoquery.service.addresses import UNKNOWN, Addresses
from pseudoquery.service.errors import RETRY, Refused, refusal, unknown_address
from pseudoquery.service.exchange import Exchange
from pseudoquery.service.logs import log_failure
from pseudoquery.service.metrics import Metrics
from pseudoquery.service.recorder import path_of
from pseudoquery.service.settings import ServiceSettings, is_loopback


class Guard:
    """Middleware that checks hosts, tokens, sizes and times, and answers every error."""

    def __init__(
        self, app: ASGIApp, addresses: Addresses, settings: ServiceSettings, metrics: Metrics
    ) -> None:
        self._app = app
        self._addresses = addresses
        self._settings = settings
        self._in_progress = 0
        metrics.in_progress.set_function(lambda: self._in_progress)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = self._addresses.find(scope["method"], path_of(scope))
        exchange = Exchange(address, scope, receive, send, self._settings)
        try:
            self._admit(exchange)
            with self._counted(exchange):
                # An upload may take as long as it likes, as long as it keeps coming.
                seconds = None if address.is_upload else self._settings.seconds
                async with asyncio.timeout(seconds) as exchange.answering:
                    await self._app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            raise
        except TimeoutError:
            await exchange.refuse(exchange.too_slow())
        except Exception as error:  # whatever it is, the client gets an answer, and the log a line
            refused = refusal(error)
            if refused.status_code >= 500:
                # Only an error about the index or its model is known to quote no document.
                known = isinstance(error, IndexFolderError | ModelError)
                reason = str(error) if known else ""
                log_failure("failure", error, route=address.route, reason=reason)
            await exchange.refuse(refused)

    @contextmanager
    def _counted(self, exchange: Exchange) -> Iterator[None]:
        """Count a request among those in progress; public addresses are always answered."""
        count = 0 if exchange.address.is_public else 1
        self._in_progress += count
        try:
            yield
        finally:
            self._in_progress -= count

    def _admit(self, exchange: Exchange) -> None:
        """Check everything that can be known before the body is read."""
        exchange.check_framing()
        if exchange.address.is_public:
            return
        settings = self._settings
        # A web page may have given its own name this machine's address (DNS rebinding). Starlette's
        # TrustedHostMiddleware has a list of names: it can't allow every loopback address, leave
        # out the addresses that a health check asks by any name, or answer in the service's form.
        if not settings.protected and not is_loopback(exchange.host):
            raise Refused(421, "without tokens, the service answers only to localhost.")
        _authorize(exchange, settings)
        if exchange.address.route == UNKNOWN:
            # The router's patterns let a line break follow a path, so it would serve some of these.
            raise unknown_address()
        _check_media_type(exchange)
        announced = exchange.header("content-length")
        if announced.isdecimal() and int(announced) > exchange.limit:
            raise exchange.too_large()
        if self._in_progress >= settings.concurrency:
            raise Refused(429, "too many requests at once; try again in a moment.", headers=RETRY)


def _authorize(exchange: Exchange, settings: ServiceSettings) -> None:
    granted = settings.access(exchange.header("authorization"))
    if granted == "none":
        raise Refused(
            401,
            "send a token that the service knows, as the header Authorization: Bearer TOKEN.",
            headers={"www-authenticate": "Bearer"},
        )
    if granted == "read" and exchange.address.access == "write":
        raise Refused(403, "this token may only read; send a write token to change documents.")


def _check_media_type(exchange: Exchange) -> None:
    """Insist on the kind of body: a browser asks before it sends these to another origin."""
    media_types = exchange.address.media_types
    if not media_types:
        return
    media_type = exchange.header("content-type").partition(";")[0].strip().lower()
    if media_type not in media_types:
        raise Refused(415, f"send the header Content-Type: {media_types[0]}.")
    if exchange.header("content-encoding") not in ("", "identity"):
        raise Refused(415, "send the body as it is, without a Content-Encoding.")
