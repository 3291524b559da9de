"""Changes to an index: vectors first, then one transaction that names them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np

from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.records import Document
from pseudoquery.storage.fields import count_wrong_fields, write_fields
from pseudoquery.storage.protocols import KnownDocument
from pseudoquery.storage.schema import (
    FORMAT_WITH_TOKENS,
    Settings,
    content_checksum,
    read_facts,
    stored_checksum,
)
from pseudoquery.storage.segment_builder import drop_documents, join_segments, segment_of_documents
from pseudoquery.storage.segments import (
    Segment,
    SegmentFacts,
    segment_path,
    sound_segment,
    write_segment,
)
from pseudoquery.storage.tables import restore_triggers, table_problems

MERGE_RUN = 8
"""At least this many neighbouring segments are merged into one."""
MERGE_GROWTH = 2
"""A merge makes a segment that is at least this many times as large as any that went into it."""
SEGMENT_BYTES = 64 << 20
"""Segments are not merged beyond about this size."""


class FolderWriter:
    """The one process that may change an index; every method that returns has committed."""

    def __init__(
        self,
        folder: Path,
        connection: sqlite3.Connection,
        settings: Settings,
        acknowledge: Callable[[int], None],
    ) -> None:
        self._folder = folder
        self._connection = connection
        self._settings = settings
        self._acknowledge = acknowledge
        """What writes down the generation of each commit."""
        self._remove_orphans()

    def known(self, ids: Iterable[str]) -> dict[str, KnownDocument]:
        """Look up which of these documents are stored."""
        known = {}
        for id_ in ids:
            row = self._connection.execute(
                "SELECT checksum, place FROM documents WHERE id = ?", [id_]
            ).fetchone()
            if row:
                checksum, origin = row
                known[id_] = KnownDocument(content_checksum(checksum), origin)
        return known

    def add(self, documents: Sequence[Document], vectors: Sequence[DocumentVectors]) -> None:
        """Add documents with distinct ids, and their vectors; a known id is replaced."""
        if documents:
            self.adopt(documents, segment_of_documents(vectors, self._settings))

    def adopt(self, documents: Sequence[Document], segment: Segment) -> None:
        """Add documents whose vectors are a segment already, made by `segment_of_documents`."""
        first = self._next_key("documents")
        ordinals = np.arange(first, first + len(documents), dtype=np.int64)
        segment = replace(segment, ordinals=ordinals)
        facts = write_segment(self._folder, self._next_key("segments"), segment)
        with self._transaction():
            self._remove([document.id for document in documents])
            self._connection.executemany(
                "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (int(ordinal), *_row_of(document, self._settings.format))
                    for ordinal, document in zip(ordinals, documents, strict=True)
                ],
            )
            self._insert_segment(facts)
        self._merge_small()

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete documents; returns the ids that were stored."""
        with self._transaction():
            return self._remove(ids)

    def forget(self, name: str) -> None:
        """Remove the note of this name."""
        with self._transaction():
            self._connection.execute("DELETE FROM settings WHERE name = ?", [name])

    def compact(self) -> None:
        """Rewrite the segments without deleted documents' vectors, and give disk space back."""
        facts = read_facts(self._connection)
        deleted = np.fromiter(
            (row[0] for row in self._connection.execute("SELECT ordinal FROM deleted")), np.int64
        )
        number = self._next_key("segments")
        written: list[SegmentFacts] = []
        for run in _runs(facts):
            merged = drop_documents(
                join_segments([sound_segment(self._folder, segment) for segment in run]), deleted
            )
            if len(merged.ordinals):
                written.append(write_segment(self._folder, number + len(written), merged))
        with self._transaction():
            self._replace_segments(facts, written)
            self._connection.execute("DELETE FROM deleted")
            self._connection.execute("UPDATE state SET epoch = epoch + 1")
        self._remove_orphans()
        self._connection.execute("INSERT INTO fulltext(fulltext) VALUES ('optimize')")
        # It frees a page at each step, and `execute` takes only one.
        self._connection.executescript("PRAGMA incremental_vacuum")

    def replace_segment(self, old: SegmentFacts, end: int | None, segment: Segment) -> None:
        """Replace a segment by new vectors of the living documents from its first up to `end`."""
        new = []
        if len(segment.ordinals):
            new = [write_segment(self._folder, self._next_key("segments"), segment)]
        with self._transaction():
            self._replace_segments([old], new)
            self._connection.execute(
                "DELETE FROM deleted WHERE ordinal >= ? AND ordinal < ?",
                [old.first, 2**63 - 1 if end is None else end],
            )
            self._connection.execute("UPDATE state SET epoch = epoch + 1")
        self._remove_orphans()

    def reindex_fulltext(self) -> None:
        """Build the full-text index anew from the documents."""
        with self._transaction():
            self._connection.execute("INSERT INTO fulltext(fulltext) VALUES ('rebuild')")

    def restore_triggers(self) -> None:
        """Make triggers anew that are not what was made."""
        if table_problems(self._connection, self._settings.format):
            with self._transaction():
                restore_triggers(self._connection, self._settings.format)

    def reindex_fields(self) -> None:
        """Make the table in which filters look values up anew, if the folder has one."""
        if self._settings.format < FORMAT_WITH_TOKENS:
            return
        try:
            wrong = count_wrong_fields(self._connection)
        except sqlite3.OperationalError:
            return  # The metadata of a document is damaged, which can't be repaired here.
        if wrong:
            with self._transaction():
                write_fields(self._connection)

    def check_fulltext(self) -> bool:
        """Compare the full-text index with the documents (SQLite lets only a writer ask)."""
        try:
            self._connection.execute(
                "INSERT INTO fulltext(fulltext, rank) VALUES ('integrity-check', 1)"
            )
        except sqlite3.DatabaseError:
            return False
        return True

    def _merge_small(self) -> None:
        """Merge the newest segments when they are many, so that their number stays small.

        Vectors of deleted documents stay, so every vector keeps its position among all.
        """
        while run := _mergeable_run(read_facts(self._connection)):
            merged = join_segments([sound_segment(self._folder, facts) for facts in run])
            written = write_segment(self._folder, self._next_key("segments"), merged)
            with self._transaction():
                self._replace_segments(run, [written])
            self._remove_orphans()

    def _replace_segments(self, old: Sequence[SegmentFacts], new: Sequence[SegmentFacts]) -> None:
        self._connection.executemany(
            "DELETE FROM segments WHERE number = ?", [(facts.number,) for facts in old]
        )
        for facts in new:
            self._insert_segment(facts)

    def _insert_segment(self, facts: SegmentFacts) -> None:
        self._connection.execute(
            "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(facts)
        )

    def _remove(self, ids: Iterable[str]) -> list[str]:
        removed = []
        for id_ in ids:
            row = self._connection.execute(
                "DELETE FROM documents WHERE id = ? RETURNING ordinal", [id_]
            ).fetchone()
            if row:
                self._connection.execute("INSERT INTO deleted VALUES (?)", row)
                removed.append(id_)
        return removed

    def _next_key(self, table: str) -> int:
        """Return the key that a table's next row gets; keys are never used twice."""
        row = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = ?", [table]
        ).fetchone()
        return int(row[0]) + 1 if row else 1

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            (generation,) = self._connection.execute(
                "UPDATE state SET generation = generation + 1 RETURNING generation"
            ).fetchone()
            self._connection.execute("COMMIT")
            self._acknowledge(generation)
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _remove_orphans(self) -> None:
        """Remove segments that no row names: replaced ones, and those of a writer that died."""
        named = {segment_path(self._folder, facts.number) for facts in read_facts(self._connection)}
        for path in (self._folder / "segments").glob("*"):
            if path not in named:
                path.unlink(missing_ok=True)


def _row_of(document: Document, format_: int) -> tuple[str, str, str, str, str, bytes]:
    return (
        document.id,
        document.title,
        document.text,
        json.dumps(dict(document.metadata), ensure_ascii=False),
        document.origin,
        stored_checksum(document, format_),
    )


def _mergeable_run(facts: Sequence[SegmentFacts]) -> list[SegmentFacts]:
    """Find the newest segments that should be one: many, none of them much of the whole.

    A merge makes each of its segments MERGE_GROWTH times as large at least, so a vector is
    rewritten a logarithmic number of times, whatever the sizes of the batches that come.
    """
    largest = total = 0
    for length, segment in enumerate(reversed(facts), start=1):
        largest, total = max(largest, segment.bytes), total + segment.bytes
        if total > SEGMENT_BYTES:
            break
        if length >= MERGE_RUN and MERGE_GROWTH * largest <= total:
            return list(facts[-length:])
    return []


def _runs(facts: Sequence[SegmentFacts]) -> Iterator[list[SegmentFacts]]:
    """Group neighbouring segments up to the size of one."""
    run: list[SegmentFacts] = []
    for segment in facts:
        if run and sum(other.bytes for other in run) + segment.bytes > SEGMENT_BYTES:
            yield run
            run = []
        run.append(segment)
    if run:
        yield run
