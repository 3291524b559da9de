"""The index folder: SQLite holds documents, deletions and full text; segments hold the vectors.

    my-index/index.sqlite     the only commit point
    my-index/segments/        immutable vector files, each named by a committed row
    my-index/derived/         Faiss structures, which can be built again at any time
    my-index/lock             held by the one writer

A segment is on disk before the transaction that names it. A crash can leave a segment that no row
names; the next writer removes it. Readers see one committed state for as long as a snapshot lasts.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from pseudoquery.errors import IndexFolderError, IndexLockedError
from pseudoquery.files import sync_folder
from pseudoquery.storage.schema import (
    SCHEMA,
    Settings,
    parse_settings,
    read_facts,
    settings_checksum,
)
from pseudoquery.storage.segments import VECTOR_TYPES, Segment, damaged, map_segment
from pseudoquery.storage.snapshot import Snapshot, integer_column, read_state
from pseudoquery.storage.sqlite_errors import sqlite_errors
from pseudoquery.storage.sqlite_readers import (
    DATABASE,
    ReaderPool,
    connect,
    connect_to_read,
    empty_log,
)
from pseudoquery.storage.vector_view import VectorView, make_view
from pseudoquery.storage.writer import Writer

UNFINISHED = f"{DATABASE}.new"
IDENTITY = "identity"
"""The note that tells an index from any other that may stand in its place later."""


class Store:
    """An index folder, open for snapshots and, one process at a time, for writing."""

    def __init__(self, folder: Path, settings: Settings, identity: str | None) -> None:
        self.folder = folder
        self.settings = settings
        self._identity = identity
        self._readers = ReaderPool(folder, partial(_check_identity, folder, identity))
        self._view: VectorView | None = None
        self._mapped: dict[int, Segment] = {}
        self._mutex = threading.Lock()

    @classmethod
    def create(
        cls, folder: Path, settings: Settings, notes: Mapping[str, str] | None = None
    ) -> Store:
        """Make a new, empty index in a folder that does not exist or is empty.

        Notes are remembered from the start, as if by `Writer.remember`.
        """
        identity = uuid.uuid4().hex
        notes = {**(notes or {}), IDENTITY: identity}
        if settings.vector_type not in VECTOR_TYPES:
            raise IndexFolderError(
                f"vector_type is {settings.vector_type!r}; choose one of {', '.join(VECTOR_TYPES)}."
            )
        with sqlite_errors(folder):
            if (folder / DATABASE).exists():
                raise IndexFolderError(
                    f"{folder} already holds an index; add to it with `pseudoquery add`, "
                    "or choose another folder."
                )
            # What a creation that was interrupted leaves behind is no reason to refuse another.
            leftovers = {"segments", "lock", *(UNFINISHED + end for end in ("", "-wal", "-shm"))}
            if folder.is_dir() and {path.name for path in folder.iterdir()} - leftovers:
                raise IndexFolderError(
                    f"{folder} is not empty and holds no index; choose another folder."
                )
            (folder / "segments").mkdir(parents=True, exist_ok=True)
            unfinished = folder / UNFINISHED
            for path in folder.glob(f"{UNFINISHED}*"):
                path.unlink()
            with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
                connection.executescript(SCHEMA)
                saved = {name: json.dumps(value) for name, value in asdict(settings).items()}
                connection.executemany(
                    "INSERT INTO settings VALUES (?, ?)",
                    [*saved.items(), ("checksum", settings_checksum(saved)), *notes.items()],
                )
            # Only a complete database bears the name that makes a folder an index.
            unfinished.rename(folder / DATABASE)
            sync_folder(folder)
        return cls(folder, settings, identity)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open an index that is there."""
        with sqlite_errors(folder):
            if not (folder / DATABASE).is_file():
                reason = "it has no index.sqlite" if folder.is_dir() else "there is no such folder"
                raise IndexFolderError(
                    f"{folder} is not an index: {reason}; "
                    f"make one with `pseudoquery index DOCUMENTS --out {folder}`."
                )
            with closing(connect_to_read(folder)[0]) as connection:
                saved = dict(connection.execute("SELECT name, value FROM settings"))
        return cls(folder, parse_settings(folder, saved), saved.get(IDENTITY))

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """See the newest committed state, unchanged until the end of the block."""
        with sqlite_errors(self.folder), self._readers.lend() as connection:
            tried = None
            while True:
                connection.execute("BEGIN")
                generation, epoch = read_state(connection)
                try:
                    view = self._refresh(connection, generation, epoch)
                    break
                except FileNotFoundError as error:
                    # A merge may have replaced a segment since: look again, as long as there is
                    # something new to see.
                    connection.execute("ROLLBACK")
                    if generation == tried:
                        raise damaged(Path(error.filename), "it is missing") from error
                    tried = generation
            with closing(Snapshot(connection, view)) as snapshot:
                yield snapshot

    @contextmanager
    def bare_snapshot(self) -> Iterator[Snapshot]:
        """See the documents alone, without touching any vectors: some may be damaged."""
        with sqlite_errors(self.folder), closing(connect_to_read(self.folder)[0]) as connection:
            connection.execute("BEGIN")
            nothing = np.zeros(0, dtype=np.int64)
            yield Snapshot(connection, make_view(-1, -1, (), nothing, 0.0))

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Become the one writer, or fail at once if there is another."""
        lock = FileLock(self.folder / "lock")
        with sqlite_errors(self.folder):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise IndexLockedError(
                    f"another process is writing to {self.folder}; wait until it has finished, "
                    "then run this again."
                ) from None
            try:
                with closing(connect(self.folder, write=True)) as connection:
                    _check_identity(self.folder, self._identity, connection)
                    dtype = VECTOR_TYPES[self.settings.vector_type]
                    try:
                        yield Writer(self.folder, connection, dtype, self.settings.dimension)
                    finally:
                        empty_log(connection)
            finally:
                lock.release()

    def _refresh(self, connection: sqlite3.Connection, generation: int, epoch: int) -> VectorView:
        with self._mutex:
            if self._view is None or self._view.generation != generation:
                facts = read_facts(connection)
                self._mapped = {
                    one.number: self._mapped.get(one.number) or map_segment(self.folder, one)
                    for one in facts
                }
                segments = tuple(self._mapped[one.number] for one in facts)
                deleted = connection.execute("SELECT ordinal FROM deleted")
                dead = integer_column(deleted)
                norm = max((one.norm for one in facts), default=0.0)
                self._view = make_view(generation, epoch, segments, dead, norm)
            return self._view


def _check_identity(folder: Path, identity: str | None, connection: sqlite3.Connection) -> None:
    row = connection.execute("SELECT value FROM settings WHERE name = ?", [IDENTITY]).fetchone()
    if (row[0] if row else None) != identity:
        raise IndexFolderError(
            f"{folder} holds another index than when it was opened; open it again, "
            "or restart what serves it."
        )
