"""Connections to an index's SQLite file: one to write, and a few to read, used again and again.

To open the file and read its schema takes longer than to find a query's candidates, so a connection
that has read is used again. It must not outlive what it was opened for:

- the file and its log. Inodes, size and time tell whether they were moved, replaced or restored
  since; the commits of a writer are in the log, and seen without opening anything anew.
- the process. SQLite's locks end with it, but a fork copies what SQLite believes of them: so before
  any fork all connections are closed that nobody is using.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DATABASE = "index.sqlite"
LOG = f"{DATABASE}-wal"
IDLE_CONNECTIONS = 4
"""At most so many connections wait for the next search, for as many threads."""

Version = tuple[int, ...]
"""What tells a file and its log from those that were there before."""


def connect(folder: Path, *, write: bool) -> sqlite3.Connection:
    """Open the file of an index."""
    connection = _open(folder, "mode=rw" if write else "mode=ro", timeout=30)
    try:
        if write:
            # Each commit reaches the disk before it is acknowledged.
            connection.execute("PRAGMA synchronous = FULL")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        connection.close()
        raise
    return connection


def connect_to_read(folder: Path) -> tuple[sqlite3.Connection, bool]:
    """Open the file for reading; returns also whether later commits will be seen."""
    try:
        return connect(folder, write=False), True
    except sqlite3.OperationalError:
        if _has_log(folder):
            raise
        # A folder that can't be written to can hold no writer: read the file as it is.
        return _open(folder, "mode=ro&immutable=1"), False


def empty_log(connection: sqlite3.Connection) -> None:
    """Move a writer's commits from the log into the file, if no reader needs them in the log.

    SQLite does so when the last connection is closed, but readers keep theirs.
    """
    with suppress(sqlite3.DatabaseError):  # They are safe in the log, too.
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


class ReaderPool:
    """Connections for reading one index, lent to one user at a time."""

    def __init__(self, folder: Path, check: Callable[[sqlite3.Connection], None]) -> None:
        self._folder = folder
        self._check = check
        """What a new connection has to pass."""
        self._idle: list[tuple[Version, sqlite3.Connection]] = []
        with _LOCK:
            _EVERY.add(self)
        weakref.finalize(self, _close, self._idle)

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """Give a connection for a while; its statements must have ended by then."""
        version = _version(self._folder)
        connection = self._take(version)
        is_new = connection is None
        if connection is None:
            connection, sees_commits = connect_to_read(self._folder)
            version = version if sees_commits else None
        try:
            if is_new:
                self._check(connection)
            yield connection
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        self._give_back(version, connection)

    def _take(self, version: Version | None) -> sqlite3.Connection | None:
        with _LOCK:
            stale = [entry for entry in self._idle if entry[0] != version]
            self._idle[:] = [entry for entry in self._idle if entry[0] == version]
            connection = self._idle.pop()[1] if self._idle else None
        _close(stale)
        return connection

    def _give_back(self, version: Version | None, connection: sqlite3.Connection) -> None:
        with _LOCK:
            if version is not None and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append((version, connection))
                return
        connection.close()


_EVERY: weakref.WeakSet[ReaderPool] = weakref.WeakSet()
_LOCK = threading.Lock()
"""Held for a moment by whoever takes or returns a connection, and while the process forks."""


def _before_fork() -> None:
    _LOCK.acquire()
    for readers in list(_EVERY):
        _close(readers._idle)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


def _close(entries: list[tuple[Version, sqlite3.Connection]]) -> None:
    while entries:
        entries.pop()[1].close()


def _open(folder: Path, options: str, timeout: float = 5) -> sqlite3.Connection:
    uri = (folder / DATABASE).resolve().as_uri()
    return sqlite3.connect(
        f"{uri}?{options}", uri=True, isolation_level=None, timeout=timeout, check_same_thread=False
    )


def _version(folder: Path) -> Version | None:
    try:
        file, log = (folder / DATABASE).stat(), (folder / LOG).stat()
    except OSError:
        return None  # Opening it will say what is wrong; or it makes the log.
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, log.st_ino


def _has_log(folder: Path) -> bool:
    """Say whether there are commits that only the write-ahead log holds."""
    log = folder / LOG
    return log.exists() and log.stat().st_size > 0
