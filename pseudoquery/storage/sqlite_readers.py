"""Connections to an index's SQLite file: one to write, and a few to read, used again and again.

To open the file and read its schema takes longer than to find a query's candidates, so a connection
that has read is used again. It must not outlive what it was opened for:

- the file and its log. Inodes, size and time tell whether they were moved, replaced or restored
  since; the commits of a writer are in the log, and seen without opening anything anew.
- the process. SQLite's locks end with it, but a fork copies what SQLite believes of them: so before
  any fork all connections are closed that nobody is using.

Whoever may not write in the folder reads beside a writer all the same, by the log and its index,
which the last writer leaves there. Where they are missing there are no locks to hold: then the file
is read as it is, and what was read is given up if the file has changed meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pseudoquery.errors import IndexFolderError

DATABASE = "index.sqlite"
LOG = f"{DATABASE}-wal"
IDLE_CONNECTIONS = 4
"""At most so many connections wait for the next search, for as many threads."""

CLOCK = 20_000_000
"""Nanoseconds after which a change certainly gives a file another time."""

ATTEMPTS = 5
"""How often a file is opened whose log has come or is about to go."""

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


@contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the file for reading, for a while."""
    connection, version = connect_to_read(folder)
    with closing(connection), unchanged(folder, version):
        yield connection


def connect_to_read(folder: Path) -> tuple[sqlite3.Connection, Version | None]:
    """Open the file for reading; if that must be without locks, returns also its version."""
    for _ in range(ATTEMPTS):
        try:
            return connect(folder, write=False), None
        except sqlite3.OperationalError:
            if not _has_log(folder):
                version = _settled_version(folder)
                return _open(folder, "mode=ro&immutable=1"), version
            # A writer may have begun the log just now, or is about to remove it.
            time.sleep(CLOCK / 1e9)
    return connect(folder, write=False), None  # This says what is wrong.


@contextmanager
def unchanged(folder: Path, version: Version | None) -> Iterator[None]:
    """Give up what is read without locks, if the file has changed before the end of the block."""
    try:
        yield
    except (sqlite3.DatabaseError, IndexFolderError, ValueError) as error:
        # What is only in a new log is no loss, though the file alone does not have it.
        if version is None or (_file_version(folder) == version and not _has_log(folder)):
            raise
        raise _changed(folder) from error
    if version is not None and _file_version(folder) != version:
        raise _changed(folder)


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
        is_new, unlocked = connection is None, None
        if connection is None:
            connection, unlocked = connect_to_read(self._folder)
        try:
            with unchanged(self._folder, unlocked):
                if is_new:
                    self._check(connection)
                yield connection
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        self._give_back(None if unlocked else version, connection)

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


def _file_version(folder: Path) -> Version:
    file = (folder / DATABASE).stat()
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def _settled_version(folder: Path) -> Version:
    """Wait until the next change of the file would show in its time."""
    version = _file_version(folder)
    while time.time_ns() - version[-1] < CLOCK:
        time.sleep(CLOCK / 1e9)
        before, version = version, _file_version(folder)
        if version == before:
            break  # The clock of another machine may be ahead.
    return version


def _changed(folder: Path) -> IndexFolderError:
    return IndexFolderError(
        f"{folder / DATABASE} was changed while it was read without locks; run this again."
    )


def _has_log(folder: Path) -> bool:
    """Say whether there are commits that only the write-ahead log holds."""
    log = folder / LOG
    return log.exists() and log.stat().st_size > 0
