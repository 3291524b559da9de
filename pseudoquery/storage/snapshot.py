"""One committed state of an index folder, for reading."""

from __future__ import annotations

import json
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import IndexFolderError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.records import Document
from pseudoquery.storage.fields import count_wrong_fields
from pseudoquery.storage.filters import (
    Matching,
    Where,
    compile_filter,
    compile_lookup_filter,
    compile_lookups,
)
from pseudoquery.storage.protocols import StoredDocument
from pseudoquery.storage.schema import (
    FORMAT_WITH_TOKENS,
    content_checksum,
    is_checksum_of,
    read_facts,
)
from pseudoquery.storage.segments import SegmentFacts
from pseudoquery.storage.tables import table_problems
from pseudoquery.storage.vector_view import VectorView

WRONG_FIELDS = "the table in which filters look values up does not agree with the documents"


class FolderSnapshot:
    """One committed state of an index folder, for reading; documents and vectors agree."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        view: VectorView,
        check: Callable[[VectorView], None],
        ids_by_generation: dict[int, Mapping[int, str]] | None = None,
        *,
        format_: int,
    ) -> None:
        self._connection = connection
        self._format = format_
        self._has_fields = format_ >= FORMAT_WITH_TOKENS
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()
        self._ids_by_generation = {} if ids_by_generation is None else ids_by_generation
        self._check = check
        self.unchecked_view = view
        """The vectors as they are on disk, damaged or not: enough to count them."""

    @property
    def view(self) -> VectorView:
        """The vectors. The first to use them compares each segment with its checksum."""
        self._check(self.unchecked_view)
        return self.unchecked_view

    def close(self) -> None:
        """Close the cursors that are still open: the connection goes to another reader."""
        for cursor in list(self._cursors):
            cursor.close()

    def matching_ordinals(self, where: Where | None) -> NDArray[np.int64]:
        """List the ordinals of the documents that satisfy a filter, ascending."""
        if self._has_fields and where:
            return self._look_up(compile_lookups(where))
        clause, parameters = compile_filter(where)
        rows = self._connection.execute(
            f"SELECT ordinal FROM documents WHERE {clause} ORDER BY ordinal",  # noqa: S608
            parameters,
        )
        return integer_column(rows)

    def _look_up(self, lookups: Sequence[Matching]) -> NDArray[np.int64]:
        """Intersect what each comparison leaves; this is faster than to let SQLite do it."""
        wanted, unwanted = (
            [
                np.unique(
                    integer_column(self._connection.execute(lookup.select, lookup.parameters))
                )
                for lookup in lookups
                if lookup.negated is negated
            ]
            for negated in (False, True)
        )
        found = wanted[0] if wanted else self.matching_ordinals(None)
        for ordinals in wanted[1:]:
            found = np.intersect1d(found, ordinals, assume_unique=True)
        for ordinals in unwanted:
            found = np.setdiff1d(found, ordinals, assume_unique=True)
        return found

    def search_fulltext(self, match: str, where: Where | None, top: int) -> list[tuple[int, float]]:
        """Rank documents by BM25 for an FTS5 expression: (ordinal, score), best first."""
        # Without a filter the full text alone knows which documents there are; none is looked up.
        if self._has_fields or not where:
            join, (clause, parameters) = "", compile_lookup_filter(where, "fulltext.rowid")
        else:
            join = "JOIN documents ON documents.ordinal = fulltext.rowid"
            clause, parameters = compile_filter(where)
        rows = self._connection.execute(
            f"SELECT fulltext.rowid, -bm25(fulltext) AS score FROM fulltext {join} "  # noqa: S608
            f"WHERE fulltext MATCH ? AND {clause} ORDER BY score DESC, fulltext.rowid LIMIT ?",
            [match, *parameters, top],
        )
        return [(row[0], row[1]) for row in rows]

    def get(self, id: str) -> StoredDocument | None:  # noqa: A002
        """Return the document with this id, or None."""
        return next(self._documents("id = ?", [id]), None)

    def by_ordinal(self, ordinal: int) -> StoredDocument:
        """Read the document with this ordinal."""
        stored = next(self._documents("ordinal = ?", [ordinal]), None)
        if stored is None:
            raise _lost_document(f"with ordinal {ordinal}")
        return stored

    def encoded(self, stored: StoredDocument) -> DocumentVectors | None:
        """Read what the encoder has made of a document; None if its tokens are not stored."""
        view = self.view
        position = int(np.searchsorted(view.ordinals, stored.ordinal))
        if not view.token_counts[position]:
            return None
        spans, owners = view.layout_of(position)
        vectors = view.vectors_of(np.array([position]))
        return DocumentVectors(vectors, owners, spans, view.codes_of(position))

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        """Read the documents that satisfy a filter, in the order in which they were added."""
        clause, parameters = (
            compile_lookup_filter(where, "ordinal") if self._has_fields else compile_filter(where)
        )
        return self._documents(f"{clause} ORDER BY ordinal", parameters)

    def documents_between(self, first: int, end: int | None) -> Iterator[StoredDocument]:
        """Read the documents with ordinals from `first` up to, but not including, `end`."""
        last = 2**63 - 1 if end is None else end - 1
        return self._documents("ordinal BETWEEN ? AND ? ORDER BY ordinal", [first, last])

    def ids(self) -> Mapping[int, str]:
        """Map every document's ordinal to its id.

        The store keeps the map of the newest state, because long rankings come in many batches.
        """
        generation = self.unchecked_view.generation
        ids = self._ids_by_generation.get(generation)
        if ids is None:
            ids = self._read_ids()
            self._ids_by_generation.clear()
            self._ids_by_generation[generation] = ids
        return ids

    def count(self) -> int:
        """Count the documents."""
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def segment_facts(self) -> list[SegmentFacts]:
        """List what is known of each segment, in order."""
        return read_facts(self._connection)

    def deleted_ordinals(self) -> NDArray[np.int64]:
        """List the deleted documents whose vectors are still in a segment, by ordinal."""
        rows = self._connection.execute("SELECT ordinal FROM deleted ORDER BY ordinal")
        return integer_column(rows)

    def note(self, name: str) -> str | None:
        """Return the note of this name, such as the source of an unfinished build."""
        row = self._connection.execute(
            "SELECT value FROM settings WHERE name = ?", [name]
        ).fetchone()
        return str(row[0]) if row else None

    def problems(self) -> list[str]:
        """Let SQLite check its own structure, and check every document against its checksum."""
        read_state(self._connection)
        rows = self._connection.execute("PRAGMA integrity_check")
        problems = [f"index.sqlite: {row[0]}" for row in rows if row[0] != "ok"]
        problems += table_problems(self._connection, self._format)
        rows = self._connection.execute(
            "SELECT id, title, text, metadata, checksum, place FROM documents ORDER BY ordinal"
        )
        # Damaged text need not be valid UTF-8 any more.
        self._connection.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
        problems += [
            f"document {id_!r}: its content is not what was written"
            for id_, title, text, metadata, checksum, origin in rows
            if not _is_sound(id_, title, text, metadata, checksum, origin)
        ]
        self._connection.text_factory = str
        # Damaged metadata can't be compared with what is looked up in its place.
        if not problems and self._has_fields and count_wrong_fields(self._connection):
            problems.append(WRONG_FIELDS)
        return problems

    def copy_database(self, path: Path) -> None:
        """Copy the database in this state into a new file."""
        # A connection that reads already copies the state that it reads.
        with closing(sqlite3.connect(path)) as copy:
            self._connection.backup(copy)

    def _read_ids(self) -> dict[int, str]:
        return dict(self._connection.execute("SELECT ordinal, id FROM documents"))

    def _documents(self, clause: str, parameters: Sequence[Any]) -> Iterator[StoredDocument]:
        rows = self._connection.execute(
            "SELECT ordinal, id, title, text, metadata, place, checksum FROM documents "  # noqa: S608
            f"WHERE {clause}",
            parameters,
        )
        self._cursors.add(rows)
        for ordinal, id_, title, text, metadata, origin, checksum in rows:
            try:
                document = Document(id_, text, title, json.loads(metadata), origin)
            except (TypeError, ValueError) as error:
                raise _lost_document(repr(id_)) from error
            yield StoredDocument(ordinal, document, content_checksum(checksum))


def _lost_document(which: str) -> IndexFolderError:
    return IndexFolderError(
        f"the document {which} in index.sqlite is damaged or lost; see what else is with "
        "`pseudoquery verify`, then restore the index from a backup, or build it again."
    )


def _is_sound(id_: str, title: str, text: str, metadata: str, checksum: bytes, origin: str) -> bool:
    try:
        document = Document(id_, text, title, json.loads(metadata), origin)
        return is_checksum_of(document, checksum)
    except (TypeError, ValueError):
        return False


def integer_column(rows: Iterable[tuple[int]]) -> NDArray[np.int64]:
    """Read rows of one integer into an array."""
    try:
        return np.fromiter((row[0] for row in rows), dtype=np.int64)
    except TypeError as error:
        raise sqlite3.DatabaseError("a document has no ordinal") from error


def read_state(connection: sqlite3.Connection) -> tuple[int, int]:
    """Read the generation and the epoch of the last commit."""
    generation, epoch = connection.execute("SELECT generation, epoch FROM state").fetchone()
    return generation, epoch
