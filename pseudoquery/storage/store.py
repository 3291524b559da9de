"""The index folder: SQLite holds documents, deletions and full text; segments hold the vectors.

    my-index/index.sqlite     the only commit point
    my-index/segments/        immutable vector files, each named by a committed row
    my-index/derived/         Faiss structures, which can be built again at any time
    my-index/acknowledged     the last change that was acknowledged, known outside of SQLite's log
    my-index/lock             held by the one writer

A segment is on disk before the transaction that names it. A crash can leave a segment that no row
names; the next writer removes it, unless acknowledged changes are missing. Readers see one
committed state for as long as a snapshot lasts.
"""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from pseudoquery.errors import IndexFolderError, IndexLockedError, QueryError
from pseudoquery.files import make_folder, sync_folder
from pseudoquery.method.token_codes import TOKEN_TYPES
from pseudoquery.storage.acknowledged import Acknowledgements
from pseudoquery.storage.lost_changes import count_lost, lost_sentence, set_aside
from pseudoquery.storage.protocols import Store
from pseudoquery.storage.schema import (
    Settings,
    parse_settings,
    read_facts,
    settings_checksum,
)
from pseudoquery.storage.segment_blocks import damaged_segment
from pseudoquery.storage.segment_checks import SegmentChecks
from pseudoquery.storage.segments import VECTOR_TYPES, Segment, map_segment, segment_path
from pseudoquery.storage.snapshot import FolderSnapshot, integer_column, read_state
from pseudoquery.storage.sqlite_errors import sqlite_errors
from pseudoquery.storage.sqlite_readers import (
    DATABASE,
    ReaderPool,
    connect,
    empty_log,
    reading,
)
from pseudoquery.storage.tables import SCHEMAS
from pseudoquery.storage.vector_view import VectorView, make_view
from pseudoquery.storage.writer import FolderWriter

UNFINISHED = f"{DATABASE}.new"
IDENTITY = "identity"
"""The note that tells an index from any other that the folder may hold later."""


class FolderStore:
    """An index folder, open for snapshots and, one process at a time, for writing."""

    engine = "pseudoquery"

    def __init__(self, folder: Path, settings: Settings, identity: str | None) -> None:
        self.folder = folder
        self.settings = settings
        self._identity = identity
        self._readers = ReaderPool(folder, partial(_check_connection, folder, identity))
        self._view: VectorView | None = None
        self._segments: dict[str, Segment] = {}
        self._ids_by_generation: dict[int, Mapping[int, str]] = {}
        self._checks = SegmentChecks()
        self._mutex = threading.Lock()

    @classmethod
    def create(
        cls, folder: Path, settings: Settings, notes: Mapping[str, str] | None = None
    ) -> FolderStore:
        """Make a new, empty index in a folder that does not exist or is empty.

        Notes are short texts that are stored with the settings.
        """
        identity = uuid.uuid4().hex
        if settings.vector_type not in VECTOR_TYPES:
            raise IndexFolderError(
                f"vector_type is {settings.vector_type!r}; choose one of {', '.join(VECTOR_TYPES)}."
            )
        if settings.tokens not in TOKEN_TYPES:
            raise IndexFolderError(
                f"tokens is {settings.tokens!r}; choose one of {', '.join(TOKEN_TYPES)}."
            )
        with sqlite_errors(folder):
            _check_new_folder(folder)
            make_folder(folder)
            make_folder(folder / "segments")
            unfinished = folder / UNFINISHED
            for path in folder.glob(f"{UNFINISHED}*"):
                path.unlink()
            _write_database(unfinished, settings, {**(notes or {}), IDENTITY: identity})
            # Only a complete database bears the name that makes a folder an index.
            unfinished.rename(folder / DATABASE)
            sync_folder(folder)
        return cls(folder, settings, identity)

    @classmethod
    def open(cls, folder: Path) -> FolderStore:
        """Open an existing index."""
        with sqlite_errors(folder):
            if not (folder / DATABASE).is_file():
                reason = "it has no index.sqlite" if folder.is_dir() else "there is no such folder"
                raise IndexFolderError(
                    f"{folder} is not an index: {reason}; "
                    f"make one with `pseudoquery index DOCUMENTS --out {folder}`."
                )
            with reading(folder) as connection:
                saved = dict(connection.execute("SELECT name, value FROM settings"))
        return cls(folder, parse_settings(folder, saved), saved.get(IDENTITY))

    @property
    def location(self) -> Path:
        """The folder."""
        return self.folder

    def facts(self) -> dict[str, Any]:
        """Count documents, vectors, segments and bytes."""
        with self.snapshot() as snapshot:
            view = snapshot.unchecked_view
            documents = snapshot.count()
            segments = snapshot.segment_facts()
        counts = np.diff(view.offsets)[view.live]
        vectors = int(counts.sum())
        return {
            "folder": str(self.folder),
            "documents": documents,
            "vectors": vectors,
            "without_vectors": int((counts == 0).sum()),
            "deleted_awaiting_compaction": int((~view.live).sum()),
            "segments": len(segments),
            "vector_bytes": sum(facts.bytes for facts in segments) - view.token_bytes,
            "vector_bytes_per_document": round(
                vectors * _bytes_per_vector(self.settings) / max(documents, 1)
            ),
            "tokens_stored": int(view.token_counts[view.live].sum()),
            "token_bytes": view.token_bytes,
            "token_bytes_per_document": round(view.token_bytes / max(len(view.ordinals), 1)),
            "bytes": sum(map(_file_size, self.folder.rglob("*"))),
        }

    @contextmanager
    def snapshot(self) -> Iterator[FolderSnapshot]:
        """Read the newest committed state, which stays unchanged until the end of the block."""
        with sqlite_errors(self.folder), self._readers.lend() as connection:
            failed_generation = None
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
                    if generation == failed_generation:
                        raise damaged_segment(Path(error.filename), "it is missing") from error
                    failed_generation = generation
            made = FolderSnapshot(
                connection,
                view,
                self._checks.check,
                self._ids_by_generation,
                format_=self.settings.format,
            )
            with closing(made) as snapshot, self._mapping_anew():
                yield snapshot

    @contextmanager
    def bare_snapshot(self) -> Iterator[FolderSnapshot]:
        """Read the documents alone, without touching any vectors: some may be damaged."""
        with sqlite_errors(self.folder), reading(self.folder) as connection:
            connection.execute("BEGIN")
            nothing = make_view(-1, -1, (), np.zeros(0, dtype=np.int64), 0.0)
            yield FolderSnapshot(
                connection, nothing, self._checks.check, format_=self.settings.format
            )

    @contextmanager
    def writer(self) -> Iterator[FolderWriter]:
        """Become the one writer, or fail at once if there is another."""
        # To open the file for writing can shorten its log: first see whether anything is lost. And
        # the last to close the file would remove the log, unless it may only read: but without the
        # log, whoever may only read has no locks.
        with self._lock(), reading(self.folder) as reader:
            _check_connection(self.folder, self._identity, reader)
            with self._writing() as writer:
                yield writer

    @contextmanager
    def _writing(self) -> Iterator[FolderWriter]:
        with closing(connect(self.folder, write=True)) as connection:
            generation, _ = read_state(connection)
            identity = self._identity or ""
            with Acknowledgements(self.folder, identity, generation) as acknowledgements:
                try:
                    yield FolderWriter(self.folder, connection, self.settings, acknowledgements.add)
                finally:
                    empty_log(connection)

    def lost_changes(self) -> str:
        """Say how many acknowledged changes are missing, if any are, and what to do."""
        with sqlite_errors(self.folder), reading(self.folder) as connection:
            lost = count_lost(self.folder, self._identity or "", connection)
        return lost_sentence(self.folder, lost) if lost else ""

    def give_up_lost_changes(self) -> None:
        """Go on without acknowledged changes that are missing, and set aside what is left."""
        identity = self._identity or ""
        with self._lock():
            with reading(self.folder) as connection:
                lost = count_lost(self.folder, identity, connection)
                generation = read_state(connection)[0] + lost
                facts = read_facts(connection)
            if not lost:
                return
            named = [segment_path(self.folder, segment.number) for segment in facts]
            set_aside(self.folder, generation, named)
            with closing(connect(self.folder, write=True)) as connection:
                # Nobody may take what comes now for what was lost: not by its generation, nor as
                # vectors that were appended to those before.
                connection.execute(
                    "UPDATE state SET generation = ?, epoch = epoch + 1", [generation + 1]
                )

    @contextmanager
    def _lock(self) -> Iterator[None]:
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
                yield
            finally:
                lock.release()

    @contextmanager
    def _mapping_anew(self) -> Iterator[None]:
        """After damage, map the segments again, which may be restored by then."""
        try:
            yield
        except IndexFolderError:
            with self._mutex:
                self._view, self._segments = None, {}
            raise

    def _refresh(self, connection: sqlite3.Connection, generation: int, epoch: int) -> VectorView:
        with self._mutex:
            if self._view is None or self._view.generation != generation:
                facts = read_facts(connection)
                known = self._segments
                self._segments = {
                    segment.sha256: known.get(segment.sha256) or map_segment(self.folder, segment)
                    for segment in facts
                }
                segments = tuple(self._segments[segment.sha256] for segment in facts)
                deleted = integer_column(connection.execute("SELECT ordinal FROM deleted"))
                norm = max((segment.norm for segment in facts), default=0.0)
                self._view = make_view(generation, epoch, segments, deleted, norm)
            return self._view


def folder_store(store: Store, otherwise: str = "and this needs an index folder") -> FolderStore:
    """Return the store of an index folder, or say why a database's store will not do."""
    if not isinstance(store, FolderStore):
        raise QueryError(f"{store.location} is kept by {store.engine}, {otherwise}.")
    return store


def _check_new_folder(folder: Path) -> None:
    if (folder / DATABASE).exists():
        raise IndexFolderError(
            f"{folder} already holds an index; add to it with `pseudoquery add`, "
            "or choose another folder."
        )
    # What a creation that was interrupted leaves behind is no reason to refuse another.
    leftovers = {"segments", "lock", *(UNFINISHED + end for end in ("", "-wal", "-shm"))}
    if folder.is_dir() and {path.name for path in folder.iterdir()} - leftovers:
        raise IndexFolderError(f"{folder} is not empty and holds no index; choose another folder.")


def _write_database(path: Path, settings: Settings, notes: Mapping[str, str]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(SCHEMAS[settings.format])
        saved = {name: json.dumps(value) for name, value in asdict(settings).items()}
        connection.executemany(
            "INSERT INTO settings VALUES (?, ?)",
            [*saved.items(), ("checksum", settings_checksum(saved)), *notes.items()],
        )


def _bytes_per_vector(settings: Settings) -> int:
    each = VECTOR_TYPES[settings.vector_type].itemsize
    # A vector in 8 bits has the length of its steps beside it, in 32 bits.
    return settings.dimension * each + (4 if each == 1 else 0)


def _file_size(path: Path) -> int:
    """Return the size of a file; a writer may have removed it since it was listed."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return 0
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def _check_connection(folder: Path, identity: str | None, connection: sqlite3.Connection) -> None:
    """Refuse a folder that holds another index by now, or has lost acknowledged changes."""
    row = connection.execute("SELECT value FROM settings WHERE name = ?", [IDENTITY]).fetchone()
    if (row[0] if row else None) != identity:
        raise IndexFolderError(
            f"{folder} holds another index than when it was opened; open it again, "
            "or restart what serves it."
        )
    if lost := count_lost(folder, identity or "", connection):
        raise IndexFolderError(lost_sentence(folder, lost))
