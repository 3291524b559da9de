"""As little HTTP as a load needs: the clients share the processor with the service they measure."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

HOST = "127.0.0.1"
LONGEST = 1 << 20
"""Bytes of an answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and when it was asked for and came."""

    status: int
    content: Any
    sent: float
    answered: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.answered - self.sent


class Connection:
    """One client's connection, kept open."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Connection:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port, limit=LONGEST)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, method: str, path: str, body: Any = None) -> Reply:
        """Send a request, wait for its answer, and parse it if it is JSON."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        sent = time.monotonic()
        self._writer.write(head.encode() + content)
        first, _, fields = (await self._reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in fields.split(b"\r\n") if line)
        answer = await self._reader.readexactly(int(headers[b"content-length"]))
        answered = time.monotonic()
        is_json = headers[b"content-type"].startswith(b"application/json")
        parsed = json.loads(answer) if is_json else answer.decode()
        return Reply(int(first.split()[1]), parsed, sent, answered)


def document_path(id: str) -> str:  # noqa: A002
    """Return the address of a document."""
    return f"/documents/{quote(id, safe='')}"
