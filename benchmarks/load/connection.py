"""As little HTTP as a load needs: the clients share the processor with the service they measure.

So a client only takes an answer in, and it is parsed when someone looks at it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

HOST = "127.0.0.1"
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.I)
_JSON = re.compile(rb"\r\ncontent-type: application/json\r\n", re.I)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came, and when it was asked for and was there."""

    head: bytes
    body: bytes
    sent: float
    answered: float

    @property
    def status(self) -> int:
        """Whether it is the answer that was hoped for."""
        return int(self.head.split(maxsplit=2)[1])

    @property
    def content(self) -> Any:
        """What it says; parsed if it is JSON."""
        return json.loads(self.body) if _JSON.search(self.head) else self.body.decode()

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.answered - self.sent


class Connection(asyncio.Protocol):
    """One client's connection, kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._received = bytearray()
        self._end: int | None = None
        """Where the answer ends, once its head is there."""

    async def __aenter__(self) -> Connection:
        """Connect."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, HOST, self._port)
        self._whole = loop.create_future()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up."""
        self._transport.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Reply:
        """Send a request, and wait for its answer."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        self._whole = asyncio.get_running_loop().create_future()
        sent = time.monotonic()
        self._transport.write(head.encode() + content)
        await self._whole
        answered = time.monotonic()
        answer, self._received, self._end = bytes(self._received), bytearray(), None
        fields, _, rest = answer.partition(b"\r\n\r\n")
        return Reply(fields + b"\r\n", rest, sent, answered)

    def data_received(self, data: bytes) -> None:
        """Take in a part of an answer."""
        self._received += data
        if self._end is None:
            head = self._received.find(b"\r\n\r\n")
            if head < 0:
                return
            length = _LENGTH.search(self._received, 0, head + 2)
            self._end = head + 4 + (int(length[1]) if length else 0)
        if len(self._received) >= self._end and not self._whole.done():
            self._whole.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever waits that nothing more will come."""
        if not self._whole.done():
            self._whole.set_exception(error or ConnectionError("the service hung up"))
        self._whole.exception()  # whoever does not wait need not know


def document_path(id: str) -> str:  # noqa: A002
    """Return the address of a document."""
    return f"/documents/{quote(id, safe='')}"
