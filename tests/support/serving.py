"""A service inside the tests' own process, on a real socket, and plain requests to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from pseudoquery.index import Index
from pseudoquery.service.app import create_app
from pseudoquery.service.dependencies import Service
from pseudoquery.service.server import server_config
from pseudoquery.service.settings import ServiceSettings

READ, WRITE = "reader-" + "r" * 16, "writer-" + "w" * 16
LINES = "application/x-ndjson"


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        """The error's code; the envelope must be as it should."""
        assert set(self.json) == {"error"}, self.content
        assert set(self.json["error"]) == {"code", "message"}
        assert self.headers["content-type"] == "application/json"
        return str(self.json["error"]["code"])

    @property
    def message(self) -> str:
        assert self.code
        return str(self.json["error"]["message"])


@dataclass(frozen=True)
class Running:
    """A service that runs."""

    port: int
    app: FastAPI | None = None

    @property
    def parts(self) -> Service:
        """What the service is made of."""
        assert self.app
        parts: Service = self.app.state.service
        return parts

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "",
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Send a request: bytes as they are, an iterator in chunks, anything else as JSON."""
        sent = dict(headers or {})
        if body is not None:
            sent.setdefault("Content-Type", kind)
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes | Iterator):
            body = json.dumps(body).encode()
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())

    def upload(self, body: Any, **how: Any) -> Reply:
        """Send lines of JSON."""
        return self.ask("POST", "/documents", body, kind=LINES, **how)

    def search(self, query: str | list[str], **how: Any) -> Any:
        """Search, and return the answers."""
        reply = self.ask("POST", "/search", {"query": query, **how})
        assert reply.status == 200, reply.content
        return reply.json["answers"]


@contextmanager
def running(index: Index, **settings: Any) -> Iterator[Running]:
    """Serve an index until the end of the block."""
    app = create_app(index, ServiceSettings(**settings))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while thread.is_alive() and not server.started:
        time.sleep(0.002)
    try:
        yield Running(listening.getsockname()[1], app)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def lines(*records: Any) -> bytes:
    """Write records as JSON lines; bytes as they stand."""
    return b"".join(
        (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in records
    )


def chunks(content: bytes, size: int) -> Iterable[bytes]:
    """Cut content, so that it is sent without saying how long it is."""
    return iter([content[start : start + size] for start in range(0, len(content), size)])


class Forks:
    """Real `pseudoquery serve` processes, started without waiting for the imports each time."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._program = subprocess.Popen(
            # -P: modules beside the program must not hide libraries of the same name.
            [sys.executable, "-P", str(Path(__file__).with_name("serve_forks.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"

    @property
    def program_id(self) -> int:
        """The process that forks: each service inherits its limits."""
        return self._program.pid

    def start(self, folder: Path, *options: str) -> tuple[int, str]:
        """Serve an index on any port; returns the process id and the URL."""
        arguments = ["serve", str(folder), "--port", "0", "--json", *options]
        self._write([str(self.log), *arguments])
        answers = [self._read(), self._read()]  # either may come first
        (pid,) = [one for one in answers if isinstance(one, int)]
        (url,) = [one["url"] for one in answers if isinstance(one, dict)]
        return pid, url

    def end(self, pid: int, number: int) -> int:
        """Send a signal, and return how the process ended."""
        os.kill(pid, number)
        return self.wait(pid)

    def wait(self, pid: int) -> int:
        """Return how a process ended."""
        self._write(pid)
        ended = self._read()
        assert isinstance(ended, int)
        return ended

    def close(self) -> None:
        """End the program that forks."""
        assert self._program.stdin
        assert self._program.stdout
        self._program.stdin.close()
        self._program.wait()
        self._program.stdout.close()

    def _write(self, value: Any) -> None:
        assert self._program.stdin
        self._program.stdin.write(f"{json.dumps(value)}\n")
        self._program.stdin.flush()

    def _read(self) -> Any:
        assert self._program.stdout
        line = self._program.stdout.readline()
        assert line, self.log.read_text() if self.log.exists() else "it ended at once"
        return json.loads(line)
