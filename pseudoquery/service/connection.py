"""One connection of a client: uvicorn's, with a limit on its patience and errors in our form."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, ClassVar

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pseudoquery.service.connections import Connections
from pseudoquery.service.errors import Refused
from pseudoquery.service.recorder import SECURITY_HEADERS

LINGER_SECONDS = 2.0
"""How long a client may take to read the last answer before its connection is cut."""


class Connection(H11Protocol):
    """One connection. It ends if no whole request comes in time, or if it must give way.

    uvicorn lets a client take all the time it likes for the head of a request, and for reading
    the end of an answer.
    """

    open_connections: ClassVar[Connections]
    head_seconds: ClassVar[float]

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._application: Any = self.app
        self.app: Any = self._serve
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.open_connections.admit(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self.open_connections.forget(self)
        self._stop_timer()

    def end(self, refused: Refused) -> None:
        """Close the connection; a client that has begun a request is told why."""
        if self.conn.trailing_data[0]:
            self._answer(refused)
        self.transport.close()
        self._start_timer(LINGER_SECONDS)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answer a request that is not HTTP. uvicorn calls this while it handles h11's error."""
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        refused = (
            Refused(431, "the head of the request is too large; shorten its address or headers.")
            if hint == 431
            else Refused(400, "the request is not valid HTTP/1.1.")
        )
        self._answer(refused)
        self.open_connections.close(self, "malformed", refused)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Until the last one on this connection is answered, nothing waits."""
        self._requests += 1
        self.open_connections.serve(self)
        self._stop_timer()
        try:
            await self._application(scope, receive, send)
        finally:
            self._requests -= 1
            if not self._requests:
                self._wait()

    def _wait(self) -> None:
        """Wait for the head of the next request, or for the client to read the last answer."""
        self.open_connections.wait(self)
        self._start_timer(self.head_seconds)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.transport.is_closing():
            self.transport.abort()
            return
        seconds = f"{self.head_seconds:g} seconds"
        refused = Refused(408, f"the head of the request did not come within {seconds}.")
        self.open_connections.close(self, "too_slow", refused)

    def _answer(self, refused: Refused) -> None:
        """Send an error, unless an answer has begun, or the client has gone."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self.transport.is_closing():
            return
        content = refused.content
        headers = {
            **SECURITY_HEADERS,
            **(refused.headers or {}),
            "content-type": "application/json",
            "content-length": str(len(content)),
            "connection": "close",
        }
        response = h11.Response(status_code=refused.status_code, headers=list(headers.items()))
        for event in (response, h11.Data(data=content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
