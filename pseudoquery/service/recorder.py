"""The outermost layer: it counts and logs every request, and adds headers to every response."""

from __future__ import annotations

import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pseudoquery.service.addresses import Addresses
from pseudoquery.service.logs import log
from pseudoquery.service.metrics import Metrics

SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_ENCODED_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
CLIENT_WENT_AWAY = 499
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")


class Recorder:
    """Middleware that counts and logs requests, and adds the security headers to responses."""

    def __init__(self, app: ASGIApp, addresses: Addresses, metrics: Metrics) -> None:
        self._app = app
        self._addresses = addresses
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, and record how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = _Record(receive, send)
        start = time.perf_counter()
        try:
            await self._app(scope, record.receive, record.send)
        except ClientDisconnect:
            record.status = CLIENT_WENT_AWAY
        finally:
            self._write(scope, record, time.perf_counter() - start)

    def _write(self, scope: Scope, record: _Record, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = self._addresses.route_of(path_of(scope))
        self._metrics.requests.labels(method, route, record.status).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        log(
            "request",
            method=method,
            route=route,
            status=record.status,
            milliseconds=round(seconds * 1000, 1),
            bytes_in=record.bytes_in,
            bytes_out=record.bytes_out,
        )


class _Record:
    """What has come in and what has gone out."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.status = self.bytes_in = self.bytes_out = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self.bytes_in += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", []))
            names = {name.lower() for name, _ in headers}
            headers += [header for header in _ENCODED_HEADERS if header[0] not in names]
            message["headers"] = headers
        self.bytes_out += len(message.get("body", b""))
        await self._send(message)


def path_of(scope: Scope) -> str:
    """Return the path of a request, within the path that the service is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
