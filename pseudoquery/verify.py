"""Find any damage to an index folder, and repair what can be made anew from the documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.segments import VECTOR_TYPES, Segment, SegmentFacts, checksum, map_segment
from pseudoquery.store import Snapshot, Store
from pseudoquery.writer import document_checksum

Encode = Callable[[Sequence[Document]], tuple[list[NDArray[np.float32]], int]]


def problems(store: Store) -> list[str]:
    """List what is wrong, a sentence each: files, checksums, documents, and how they agree."""
    with store.writer() as writer:
        fulltext = writer.check_fulltext()
        # Under the writer's lock nothing changes, so files and rows can be compared in peace.
        with store.bare_snapshot() as snapshot:
            found = snapshot.problems()
            found += [
                f"segment {facts.number}: {how}"
                for facts in snapshot.segment_facts()
                if (how := _segment_problem(store, facts))
            ]
            found += _document_problems(snapshot)
            found += _agreement_problems(store, snapshot)
    if not fulltext:
        found.append("the full-text index does not agree with the documents")
    return found


def repair(store: Store, encode: Encode) -> int:
    """Encode the documents of damaged segments again, and rebuild the full-text index."""
    repaired = 0
    with store.writer() as writer:
        if not writer.check_fulltext():
            writer.reindex_fulltext()
        with store.bare_snapshot() as snapshot:
            facts = snapshot.segment_facts()
            ends = [*(one.first for one in facts[1:]), None]
            lost = [
                (one, end, list(snapshot.between(one.first, end)))
                for one, end in zip(facts, ends, strict=True)
                if _segment_problem(store, one)
            ]
        for one, end, stored in lost:
            vectors, _ = encode([each.document for each in stored])
            segment = _segment(store, [each.ordinal for each in stored], vectors)
            writer.replace_segment(one, end, segment)
            repaired += len(stored)
    return repaired


def _segment(
    store: Store, ordinals: Sequence[int], vectors: Sequence[NDArray[np.float32]]
) -> Segment:
    empty = np.zeros((0, store.settings.dimension), dtype=np.float32)
    dtype: np.dtype[Any] = VECTOR_TYPES[store.settings.vector_type]
    return Segment(
        np.concatenate([empty, *vectors]).astype(dtype),
        np.array(ordinals, dtype=np.int64),
        np.array([len(own) for own in vectors], dtype=np.int64),
    )


def _segment_problem(store: Store, facts: SegmentFacts) -> str:
    try:
        segment = map_segment(store.folder, facts)
        if checksum(store.folder, facts.number) != facts.sha256:
            return "its content is not what was written (the checksum differs)"
    except FileNotFoundError:
        return "its file is missing"
    except OSError as error:
        return f"its file can't be read ({error})"
    except IndexFolderError as error:
        return str(error)
    if int(segment.counts.sum()) != len(segment.vectors):
        return "its counts do not add up to its vectors"
    return ""


def _document_problems(snapshot: Snapshot) -> list[str]:
    return [
        f"document {stored.document.id!r}: its content is not what was written"
        for stored in snapshot.documents()
        if stored.checksum != document_checksum(stored.document)
    ]


def _agreement_problems(store: Store, snapshot: Snapshot) -> list[str]:
    """Every document has its place in exactly one segment, and every place is of a document."""
    places = []
    for facts in snapshot.segment_facts():
        if _segment_problem(store, facts):
            return []  # reported already; what it held can't be compared
        places.append(map_segment(store.folder, facts).ordinals)
    held = np.concatenate([np.zeros(0, np.int64), *places])
    expected = np.union1d(snapshot.matching(None), snapshot.deleted())
    if len(np.unique(held)) != len(held) or (np.diff(held) <= 0).any():
        return ["the segments hold a document twice or out of order"]
    if not np.array_equal(held, expected):
        missing = len(np.setdiff1d(expected, held))
        extra = len(np.setdiff1d(held, expected))
        return [f"{missing} documents have no vectors' place, and {extra} places have no document"]
    return []
