"""The index folder: SQLite holds documents, deletions and full text; segments hold the vectors.

    my-index/index.sqlite     the only commit point
    my-index/segments/        immutable vector files, each named by a committed row
    my-index/derived/         Faiss structures, which can be built again at any time
    my-index/lock             held by the one writer

A segment is on disk before the transaction that names it. A crash can leave a segment that no row
names; the next writer removes it. Readers see one committed state for as long as a snapshot lasts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from pseudoquery.errors import IndexFolderError, IndexLockedError, QueryError
from pseudoquery.records import Document
from pseudoquery.storage.filters import Where, compile_filter
from pseudoquery.storage.segments import (
    VECTOR_TYPES,
    Segment,
    SegmentFacts,
    damaged,
    map_segment,
    sync_folder,
)
from pseudoquery.storage.sqlite_readers import (
    DATABASE,
    Readers,
    connect,
    connect_to_read,
    empty_log,
)
from pseudoquery.storage.vector_view import View, make_view
from pseudoquery.storage.writer import Writer, document_checksum, read_facts

FORMAT = 1
UNFINISHED = f"{DATABASE}.new"
IDENTITY = "identity"
"""The note that tells an index from any other that may stand in its place later."""
FULLTEXT_TOKENIZER = "porter unicode61 remove_diacritics 2"

SCHEMA = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE state (generation INTEGER NOT NULL, epoch INTEGER NOT NULL);
INSERT INTO state VALUES (0, 0);
CREATE TABLE segments (
  number INTEGER PRIMARY KEY AUTOINCREMENT, first INTEGER NOT NULL, documents INTEGER NOT NULL,
  vectors INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, norm REAL NOT NULL);
CREATE TABLE documents (
  ordinal INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL,
  text TEXT NOT NULL, metadata TEXT NOT NULL, place TEXT NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE deleted (ordinal INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE fulltext USING fts5(
  title, text, content='documents', content_rowid='ordinal',
  tokenize='{FULLTEXT_TOKENIZER}');
CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
  INSERT INTO fulltext(rowid, title, text) VALUES (new.ordinal, new.title, new.text);
END;
CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
  INSERT INTO fulltext(fulltext, rowid, title, text)
  VALUES ('delete', old.ordinal, old.title, old.text);
END;
COMMIT;
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Settings:
    """What an index was made with; it never changes."""

    model: str
    fingerprint: str
    dimension: int
    representation: Mapping[str, Any]
    long: str = "windows"
    vector_type: str = "float16"
    format: int = FORMAT
    precision: str = "float32"
    """What the encoder computes in, for documents and queries alike."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as the store knows it."""

    ordinal: int
    document: Document
    checksum: bytes


class Snapshot:
    """One committed state of an index, for reading; documents and vectors agree."""

    def __init__(self, connection: sqlite3.Connection, view: View) -> None:
        self._connection = connection
        self._reading: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()
        self.view = view

    def close(self) -> None:
        """End what is still being read: the connection is for others now."""
        for cursor in list(self._reading):
            cursor.close()

    def matching(self, where: Where | None) -> NDArray[np.int64]:
        """List the numbers of the documents that satisfy a filter, ascending."""
        clause, parameters = compile_filter(where)
        rows = self._connection.execute(
            f"SELECT ordinal FROM documents WHERE {clause} ORDER BY ordinal",  # noqa: S608
            parameters,
        )
        return _numbers(rows)

    def fulltext(self, match: str, where: Where | None, top: int) -> list[tuple[int, float]]:
        """Rank documents by BM25 for an FTS5 expression: (number, score), best first."""
        clause, parameters = compile_filter(where)
        # Without a filter the full text alone knows which documents there are; none is looked up.
        join = "JOIN documents ON documents.ordinal = fulltext.rowid" if where else ""
        rows = self._connection.execute(
            f"SELECT fulltext.rowid, -bm25(fulltext) AS score FROM fulltext {join} "  # noqa: S608
            f"WHERE fulltext MATCH ? AND {clause} ORDER BY score DESC, fulltext.rowid LIMIT ?",
            [match, *parameters, top],
        )
        return [(row[0], row[1]) for row in rows]

    def get(self, id: str) -> Stored | None:  # noqa: A002
        """Find a document by its id."""
        found = self._rows("id = ?", [id])
        return next(found, None)

    def by_ordinal(self, ordinal: int) -> Stored:
        """Read the document of this number."""
        found = next(self._rows("ordinal = ?", [ordinal]), None)
        if found is None:
            raise _lost_document(f"number {ordinal}")
        return found

    def documents(self, where: Where | None = None) -> Iterator[Stored]:
        """Read all documents that satisfy a filter, in the order in which they were added."""
        clause, parameters = compile_filter(where)
        return self._rows(f"{clause} ORDER BY ordinal", parameters)

    def between(self, first: int, end: int | None) -> Iterator[Stored]:
        """Read the documents with numbers from `first` up to, but not including, `end`."""
        last = 2**63 - 1 if end is None else end - 1
        return self._rows("ordinal BETWEEN ? AND ? ORDER BY ordinal", [first, last])

    def ids(self) -> dict[int, str]:
        """Map every document's number to its id."""
        return dict(self._connection.execute("SELECT ordinal, id FROM documents"))

    def count(self) -> int:
        """Count the documents."""
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def segment_facts(self) -> list[SegmentFacts]:
        """List what is known of each segment, in order."""
        return read_facts(self._connection)

    def deleted(self) -> NDArray[np.int64]:
        """List the numbers of documents whose vectors are still in a segment but don't count."""
        rows = self._connection.execute("SELECT ordinal FROM deleted ORDER BY ordinal")
        return _numbers(rows)

    def remembered(self, name: str) -> str | None:
        """Return what a writer noted under this name."""
        row = self._connection.execute(
            "SELECT value FROM settings WHERE name = ?", [name]
        ).fetchone()
        return str(row[0]) if row else None

    def problems(self) -> list[str]:
        """Let SQLite check its own structure, and every document against its checksum."""
        _state(self._connection)
        rows = self._connection.execute("PRAGMA integrity_check")
        found = [f"index.sqlite: {row[0]}" for row in rows if row[0] != "ok"]
        rows = self._connection.execute(
            "SELECT id, title, text, metadata, checksum, place FROM documents ORDER BY ordinal"
        )
        # What is damaged need not be text any more.
        self._connection.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
        found += [
            f"document {id_!r}: its content is not what was written"
            for id_, title, text, metadata, checksum, _ in rows
            if not _is_sound(id_, title, text, metadata, checksum)
        ]
        self._connection.text_factory = str
        return found

    def _rows(self, clause: str, parameters: Sequence[Any]) -> Iterator[Stored]:
        rows = self._connection.execute(
            "SELECT ordinal, id, title, text, metadata, place, checksum FROM documents "  # noqa: S608
            f"WHERE {clause}",
            parameters,
        )
        self._reading.add(rows)
        for ordinal, id_, title, text, metadata, place, checksum in rows:
            try:
                document = Document(id_, text, title, json.loads(metadata), place)
            except (TypeError, ValueError) as error:
                raise _lost_document(repr(id_)) from error
            yield Stored(ordinal, document, checksum)


def _lost_document(which: str) -> IndexFolderError:
    return IndexFolderError(
        f"the document {which} in index.sqlite is damaged or lost; see what else is with "
        "`pseudoquery verify`, then restore the index from a backup, or build it again."
    )


def _is_sound(id_: str, title: str, text: str, metadata: str, checksum: bytes) -> bool:
    try:
        document = Document(id_, text, title, json.loads(metadata))
        return document_checksum(document) == checksum
    except (TypeError, ValueError):
        return False


class Store:
    """An index folder, open for snapshots and, one process at a time, for writing."""

    def __init__(self, folder: Path, settings: Settings, identity: str | None) -> None:
        self.folder = folder
        self.settings = settings
        self._identity = identity
        self._readers = Readers(folder, partial(_check_identity, folder, identity))
        self._view: View | None = None
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
        with plain_errors(folder):
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
                    [*saved.items(), ("checksum", _settings_checksum(saved)), *notes.items()],
                )
            # Only a complete database bears the name that makes a folder an index.
            unfinished.rename(folder / DATABASE)
            sync_folder(folder)
        return cls(folder, settings, identity)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open an index that is there."""
        with plain_errors(folder):
            if not (folder / DATABASE).is_file():
                reason = "it has no index.sqlite" if folder.is_dir() else "there is no such folder"
                raise IndexFolderError(
                    f"{folder} is not an index: {reason}; "
                    f"make one with `pseudoquery index DOCUMENTS --out {folder}`."
                )
            with closing(connect_to_read(folder)[0]) as connection:
                saved = dict(connection.execute("SELECT name, value FROM settings"))
        return cls(folder, _settings(folder, saved), saved.get(IDENTITY))

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """See the newest committed state, unchanged until the end of the block."""
        with plain_errors(self.folder), self._readers.lend() as connection:
            tried = None
            while True:
                connection.execute("BEGIN")
                generation, epoch = _state(connection)
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
        with plain_errors(self.folder), closing(connect_to_read(self.folder)[0]) as connection:
            connection.execute("BEGIN")
            nothing = np.zeros(0, dtype=np.int64)
            yield Snapshot(connection, make_view(-1, -1, (), nothing, 0.0))

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Become the one writer, or fail at once if there is another."""
        lock = FileLock(self.folder / "lock")
        with plain_errors(self.folder):
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

    def _refresh(self, connection: sqlite3.Connection, generation: int, epoch: int) -> View:
        with self._mutex:
            if self._view is None or self._view.generation != generation:
                facts = read_facts(connection)
                self._mapped = {
                    one.number: self._mapped.get(one.number) or map_segment(self.folder, one)
                    for one in facts
                }
                segments = tuple(self._mapped[one.number] for one in facts)
                deleted = connection.execute("SELECT ordinal FROM deleted")
                dead = _numbers(deleted)
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


def _numbers(rows: Iterable[tuple[int]]) -> NDArray[np.int64]:
    try:
        return np.fromiter((row[0] for row in rows), dtype=np.int64)
    except TypeError as error:
        raise sqlite3.DatabaseError("a document has no number") from error


def _state(connection: sqlite3.Connection) -> tuple[int, int]:
    generation, epoch = connection.execute("SELECT generation, epoch FROM state").fetchone()
    return generation, epoch


@contextmanager
def plain_errors(folder: Path) -> Iterator[None]:
    """Turn what the disk and SQLite can say into one sentence that a user can act on."""
    try:
        yield
    except PermissionError as error:
        raise IndexFolderError(
            f"no permission for {error.filename or folder}; "
            "change its owner or mode, or choose another folder."
        ) from error
    except sqlite3.DatabaseError as error:
        raise IndexFolderError(_database_sentence(folder, error)) from error
    except UnicodeDecodeError as error:
        # SQLite quotes what it can't understand in its message.
        raise IndexFolderError(_no_index(folder)) from error
    except UnicodeEncodeError as error:
        # Documents are checked before they come here, so it was asked for; it can't be there.
        raise QueryError(f"{error.object!r} is not valid Unicode (a lone surrogate).") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise IndexFolderError(_full_disk(folder)) from error
        if error.errno == errno.EROFS:
            raise IndexFolderError(f"{folder} is on a disk that can only be read.") from error
        raise IndexFolderError(f"{folder} can't be used: {error}.") from error


def _database_sentence(folder: Path, error: sqlite3.DatabaseError) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return _full_disk(folder)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return (
            f"no permission to write in {folder}; "
            "change its owner or mode, or choose another folder."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"{folder / 'index.sqlite'} is damaged ({error}); restore it from a backup, "
            "or build the index again."
        )
    if "no such table" in str(error):
        return _no_index(folder)
    return f"{folder / 'index.sqlite'} can't be used ({error})."


def _full_disk(folder: Path) -> str:
    return (
        f"no space is left on the disk of {folder}; everything acknowledged so far is safe: "
        "free some space, then run this again."
    )


def _settings(folder: Path, saved: Mapping[str, str]) -> Settings:
    try:
        version = json.loads(saved["format"])
        if version > FORMAT:
            raise IndexFolderError(
                f"{folder} was made by a newer version of pseudoquery (its format is {version}, "
                f"this version reads up to {FORMAT}); upgrade with: pip install -U pseudoquery"
            )
        if saved["checksum"] != _settings_checksum(saved):
            raise ValueError("the settings are not what was written")
        values = {name: json.loads(saved[name]) for name in _settings_in(saved)}
    except (KeyError, ValueError, TypeError) as error:
        raise IndexFolderError(_no_index(folder)) from error
    return Settings(**values)


def _settings_checksum(saved: Mapping[str, str]) -> str:
    content = json.dumps([saved[name] for name in _settings_in(saved)])
    return hashlib.sha256(content.encode()).hexdigest()


def _settings_in(saved: Mapping[str, str]) -> list[str]:
    """Name the settings; an index that is older than one of them has its default."""
    names = [field.name for field in fields(Settings)]
    return [name for name in names if name != "precision" or name in saved]


def _no_index(folder: Path) -> str:
    return (
        f"{folder / 'index.sqlite'} is not an index of pseudoquery, or is damaged; "
        "restore it from a backup, or build the index again."
    )
