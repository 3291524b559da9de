"""One request and its response, within the limits of the service."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from pseudoquery.service.addresses import Address
from pseudoquery.service.errors import RETRY, Refused
from pseudoquery.service.settings import ServiceSettings

DRAINED_BYTES, DRAINED_SECONDS = 8 << 20, 2.0
"""How much of a refused request is still read: many clients read no answer before they have sent
everything."""
PIECE_BYTES = 256 << 10
"""A response is sent in pieces of this size, so that no more than one waits for a slow client."""

_HOST = re.compile(r"(?P<name>\[[^\[\]]*\]|[^\[\]:@]*)(:[0-9]*)?")


class Exchange:
    """One request and its response: what has come in, and whether an answer has begun."""

    def __init__(
        self,
        address: Address,
        scope: Scope,
        receive: Receive,
        send: Send,
        settings: ServiceSettings,
    ) -> None:
        self.address = address
        self._scope, self._receive, self._send = scope, receive, send
        self._settings = settings
        self._received = 0
        self._complete = self._answered = False
        self.answering: asyncio.Timeout | None = None
        """The time in which an answer must begin; it stops when the answer begins."""
        self._headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }

    def header(self, name: str) -> str:
        """Return a header of the request, or an empty text."""
        return self._headers.get(name, "")

    @property
    def limit(self) -> int:
        """How many bytes the body may have."""
        settings = self._settings
        return settings.bulk_bytes if self.address.is_upload else settings.body_bytes

    @property
    def host(self) -> str:
        """The name by which the client knows the service, without a port; "" if it is no name."""
        host = _HOST.fullmatch(self.header("host"))
        return host["name"] if host else ""

    def check_framing(self) -> None:
        """Refuse a request whose body other servers may take to end elsewhere (smuggling)."""
        if not self.header("transfer-encoding"):
            return
        if self.header("content-length") or self._scope["http_version"] == "1.0":
            raise Refused(
                400,
                "the request says in two ways where its body ends; send either Content-Length or "
                "Transfer-Encoding.",
                headers={"connection": "close"},
            )

    async def receive(self) -> Message:
        """Read on, as far as the limits allow."""
        try:
            # The first message is there at once if there is no body. Not wait_for(), which in
            # Python 3.11 loses a cancellation that comes together with the message.
            async with asyncio.timeout(self._settings.seconds):
                message = await self._receive()
        except TimeoutError:
            raise self.too_slow() from None
        self._received += len(message.get("body", b""))
        self._complete = _is_last(message)
        if self._received > self.limit:
            raise self.too_large()
        return message

    async def send(self, message: Message) -> None:
        """Write a part of the response. The client must take it in time, piece by piece."""
        if message["type"] == "http.response.start":
            self._answered = True
            if self.answering and not self.answering.expired():
                self.answering.reschedule(None)
            if message["status"] >= 400:
                await self._drain()
            await self._send(message)
            return
        body: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        for start in range(0, len(body) or 1, PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            more_body = more or start + PIECE_BYTES < len(body)
            await self._send_piece({**message, "body": piece, "more_body": more_body})

    async def _send_piece(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._settings.seconds):
                await self._send(message)
        except TimeoutError:
            raise ClientDisconnect from None  # it has stopped reading

    async def refuse(self, refused: Refused) -> None:
        """Answer with an error, unless an answer has begun."""
        self.answering = None
        if not self._answered:
            await refused.response()(self._scope, self._receive, self.send)

    def too_large(self) -> Refused:
        """Say that the body is larger than allowed."""
        return Refused(413, f"the body is larger than {self.limit:,} bytes, which is the limit.")

    def too_slow(self) -> Refused:
        """Say who took too long: the client to send, or the service to answer."""
        seconds = f"{self._settings.seconds:g} seconds"
        if not self._complete:
            return Refused(408, f"nothing more of the request came within {seconds}.")
        return Refused(
            504,
            f"there was no answer within {seconds}; a change may or may not have been made.",
            headers=RETRY,
        )

    async def _drain(self) -> None:
        """Read what a client still sends, for a while: else it may miss why it is refused."""
        if self.header("expect"):
            return  # it waits for permission to send
        left = DRAINED_BYTES
        try:
            async with asyncio.timeout(DRAINED_SECONDS):
                while not self._complete and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self._complete = _is_last(message)
        except TimeoutError:
            return


def _is_last(message: Message) -> bool:
    return message["type"] != "http.request" or not message.get("more_body")
