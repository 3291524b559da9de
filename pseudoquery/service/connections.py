"""The open connections: how many there may be, and which of them gives way when there are more."""

from __future__ import annotations

import resource
import time
from collections import Counter
from pathlib import Path
from typing import Literal, Protocol

from pseudoquery.service.errors import RETRY, Refused
from pseudoquery.service.logs import log
from pseudoquery.service.metrics import Metrics

Reason = Literal["too_many", "too_slow", "malformed"]
LOG_SECONDS = 10.0
"""Lines about closed connections are at least this far apart: many may be closed in a second."""


class Ending(Protocol):
    """A connection that can be ended."""

    def end(self, refused: Refused) -> None:
        """Close the connection, after an answer if one can be sent."""


class Connections:
    """The open connections of one service, and those of them that wait for a request."""

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit = limit
        self._metrics = metrics
        self._open: set[Ending] = set()
        self._waiting: dict[Ending, None] = {}  # in the order in which they began to wait
        self._unlogged: Counter[str] = Counter()
        self._next_line = 0.0
        metrics.connections.set_function(lambda: len(self._open))

    def admit(self, connection: Ending) -> None:
        """Count a new connection. If there are too many, the longest waiting one gives way.

        A client that opens connections and sends no request can so keep nobody else out.
        """
        self._open.add(connection)
        if len(self._open) <= self._limit:
            return
        given_up = next(iter(self._waiting), connection)
        self.close(
            given_up,
            "too_many",
            Refused(429, "too many connections at once; try again in a moment.", headers=RETRY),
        )

    def wait(self, connection: Ending) -> None:
        """Note that a connection waits for a request from now on."""
        if connection in self._open:
            self._waiting[connection] = None

    def serve(self, connection: Ending) -> None:
        """Note that a connection has a request, and gives way to no other."""
        self._waiting.pop(connection, None)

    def close(self, connection: Ending, reason: Reason, refused: Refused) -> None:
        """End a connection, and leave a trace of it in the metrics and the log."""
        self.forget(connection)
        connection.end(refused)
        self._metrics.closed.labels(reason).inc()
        self._unlogged[reason] += 1
        if time.monotonic() >= self._next_line:
            log("connections_closed", open=len(self._open), limit=self._limit, **self._unlogged)
            self._unlogged.clear()
            self._next_line = time.monotonic() + LOG_SECONDS

    def forget(self, connection: Ending) -> None:
        """Count a connection no more."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)


def affordable_connections(wanted: int) -> int:
    """Return how many connections this process can hold, and leave as many files to the index.

    The soft limit on open files is raised as far as the system allows.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return wanted
    free = hard - sum(1 for _ in Path("/dev/fd").iterdir())
    affordable = max(1, min(wanted, free // 2))
    if affordable < wanted:
        log("fewer_connections", wanted=wanted, limit=affordable, open_files=hard)
    return affordable
