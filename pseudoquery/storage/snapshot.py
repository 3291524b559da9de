"""One committed state of an index folder, for reading."""

from __future__ import annotations

import json
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.storage.filters import Where, compile_filter
from pseudoquery.storage.schema import document_checksum, read_facts
from pseudoquery.storage.segments import SegmentFacts
from pseudoquery.storage.vector_view import VectorView


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as the store knows it."""

    ordinal: int
    document: Document
    checksum: bytes


class Snapshot:
    """One committed state of an index, for reading; documents and vectors agree."""

    def __init__(self, connection: sqlite3.Connection, view: VectorView) -> None:
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
        return integer_column(rows)

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
        return integer_column(rows)

    def remembered(self, name: str) -> str | None:
        """Return what a writer noted under this name."""
        row = self._connection.execute(
            "SELECT value FROM settings WHERE name = ?", [name]
        ).fetchone()
        return str(row[0]) if row else None

    def problems(self) -> list[str]:
        """Let SQLite check its own structure, and every document against its checksum."""
        read_state(self._connection)
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


def integer_column(rows: Iterable[tuple[int]]) -> NDArray[np.int64]:
    """Read rows of one integer into an array."""
    try:
        return np.fromiter((row[0] for row in rows), dtype=np.int64)
    except TypeError as error:
        raise sqlite3.DatabaseError("a document has no number") from error


def read_state(connection: sqlite3.Connection) -> tuple[int, int]:
    """Read the generation and the epoch of the last commit."""
    generation, epoch = connection.execute("SELECT generation, epoch FROM state").fetchone()
    return generation, epoch
