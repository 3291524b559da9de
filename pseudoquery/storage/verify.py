"""Find any damage to an index folder, and repair what can be made anew from the documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import IndexFolderError
from pseudoquery.records import Document
from pseudoquery.storage.int8_codes import are_codes_of, codes_path
from pseudoquery.storage.segment_builder import make_segment
from pseudoquery.storage.segments import (
    VECTOR_TYPES,
    Segment,
    SegmentFacts,
    facts_of,
    map_segment,
    sound_segment,
)
from pseudoquery.storage.snapshot import Snapshot
from pseudoquery.storage.store import Store

Encode = Callable[[Sequence[Document]], tuple[list[NDArray[np.float32]], int]]


def problems(store: Store) -> list[str]:
    """List what is wrong, a sentence each: files, checksums, documents, and how they agree."""
    with store.writer() as writer:
        fulltext = writer.check_fulltext()
        # Under the writer's lock nothing changes, so files and rows can be compared in peace.
        with store.bare_snapshot() as snapshot:
            try:
                found = _problems(store, snapshot)
            except sqlite3.DatabaseError as error:
                found = [f"index.sqlite: {error}"]
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
            for path in _wrong_codes(store, snapshot):
                path.unlink()  # it is made anew when it is needed
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
    return make_segment(
        np.concatenate([empty, *vectors]),
        np.array(ordinals, dtype=np.int64),
        np.array([len(own) for own in vectors], dtype=np.int64),
        dtype,
    )


def _problems(store: Store, snapshot: Snapshot) -> list[str]:
    found = snapshot.problems()
    broken = [
        f"segment {facts.number}: {how}"
        for facts in snapshot.segment_facts()
        if (how := _segment_problem(store, facts))
    ]
    # What a broken segment held can't be compared with the documents.
    found += broken or _agreement_problems(store, snapshot)
    return found + [
        f"derived/{path.name}: it does not hold the codes of its segment"
        for path in _wrong_codes(store, snapshot)
    ]


def _wrong_codes(store: Store, snapshot: Snapshot) -> list[Path]:
    """List files of codes that are not what their segments have; a sound one is needed to tell."""
    wrong = []
    for facts in snapshot.segment_facts():
        if _segment_problem(store, facts):
            continue
        segment = map_segment(store.folder, facts)
        path = codes_path(store.folder / "derived", segment)
        if path.exists() and not are_codes_of(path, segment):
            wrong.append(path)
    return wrong


def _segment_problem(store: Store, facts: SegmentFacts) -> str:
    try:
        segment = sound_segment(store.folder, facts)
    except OSError as error:
        return f"its file can't be read ({error})"
    except IndexFolderError as error:
        return str(error).partition(";")[0]
    if facts_of(facts.number, segment, facts.bytes, facts.sha256) != facts:
        return "what index.sqlite says of it is not what it holds"
    return ""


def _agreement_problems(store: Store, snapshot: Snapshot) -> list[str]:
    """Every document has its place in exactly one segment, and every place is of a document."""
    places = [map_segment(store.folder, facts).ordinals for facts in snapshot.segment_facts()]
    held = np.concatenate([np.zeros(0, np.int64), *places])
    expected = np.union1d(snapshot.matching(None), snapshot.deleted())
    if len(np.unique(held)) != len(held) or (np.diff(held) <= 0).any():
        return ["the segments hold a document twice or out of order"]
    if not np.array_equal(held, expected):
        missing = len(np.setdiff1d(expected, held))
        extra = len(np.setdiff1d(held, expected))
        return [f"{missing} documents have no vectors' place, and {extra} places have no document"]
    return []
