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
from pseudoquery.storage.snapshot import FolderSnapshot
from pseudoquery.storage.store import FolderStore

Encode = Callable[[Sequence[Document]], tuple[list[NDArray[np.float32]], int]]
NAMED_DOCUMENTS = 3
"""So many documents are named in a sentence; the others are counted."""
RESTORE = "restore the index from a backup, or build it again"


def problems(store: FolderStore) -> list[str]:
    """List what is wrong, a sentence each: files, checksums, documents, and how they agree."""
    with store.writer() as writer:
        is_fulltext_sound = writer.check_fulltext()
        # Under the writer's lock nothing changes, so files and rows can be compared in peace.
        with store.bare_snapshot() as snapshot:
            try:
                sentences = _problems(store, snapshot)
            except sqlite3.DatabaseError as error:
                sentences = [f"index.sqlite: {error}"]
    if not is_fulltext_sound:
        sentences.append("the full-text index does not agree with the documents")
    return sentences


def repair(store: FolderStore, encode: Encode) -> int:
    """Encode the documents of damaged segments again, and rebuild the full-text index."""
    repaired = 0
    with store.writer() as writer:
        if not writer.check_fulltext():
            writer.reindex_fulltext()
        with store.bare_snapshot() as snapshot:
            for path in _wrong_codes(store, snapshot):
                path.unlink()  # it is made anew when it is needed
            segments = snapshot.segment_facts()
            ends = [*(facts.first for facts in segments[1:]), None]
            damaged = [
                (facts, end, list(snapshot.documents_between(facts.first, end)))
                for facts, end in zip(segments, ends, strict=True)
                if _segment_problem(store, facts)
            ]
        for facts, end, documents in damaged:
            vectors, _ = encode([stored.document for stored in documents])
            segment = _make_segment(store, [stored.ordinal for stored in documents], vectors)
            writer.replace_segment(facts, end, segment)
            repaired += len(documents)
    return repaired


def _make_segment(
    store: FolderStore, ordinals: Sequence[int], vectors: Sequence[NDArray[np.float32]]
) -> Segment:
    empty = np.zeros((0, store.settings.dimension), dtype=np.float32)
    dtype: np.dtype[Any] = VECTOR_TYPES[store.settings.vector_type]
    return make_segment(
        np.concatenate([empty, *vectors]),
        np.array(ordinals, dtype=np.int64),
        np.array([len(document_vectors) for document_vectors in vectors], dtype=np.int64),
        dtype,
    )


def _problems(store: FolderStore, snapshot: FolderSnapshot) -> list[str]:
    sentences = snapshot.problems()
    broken = [
        f"segment {facts.number}: {problem}"
        for facts in snapshot.segment_facts()
        if (problem := _segment_problem(store, facts))
    ]
    # What a broken segment held can't be compared with the documents.
    sentences += broken or _agreement_problems(store, snapshot)
    return sentences + [
        f"derived/{path.name}: it does not hold the codes of its segment"
        for path in _wrong_codes(store, snapshot)
    ]


def _wrong_codes(store: FolderStore, snapshot: FolderSnapshot) -> list[Path]:
    """List files of codes that differ from their segments; damaged segments tell nothing."""
    wrong = []
    for facts in snapshot.segment_facts():
        if _segment_problem(store, facts):
            continue
        segment = map_segment(store.folder, facts)
        path = codes_path(store.folder / "derived", segment)
        if path.exists() and not are_codes_of(path, segment):
            wrong.append(path)
    return wrong


def _segment_problem(store: FolderStore, facts: SegmentFacts) -> str:
    try:
        segment = sound_segment(store.folder, facts)
    except OSError as error:
        return f"its file can't be read ({error})"
    except IndexFolderError as error:
        return str(error).partition(";")[0]
    if facts_of(facts.number, segment, facts.bytes, facts.sha256) != facts:
        return "what index.sqlite says of it is not what it holds"
    return ""


def _agreement_problems(store: FolderStore, snapshot: FolderSnapshot) -> list[str]:
    """Check that every document has its vectors in exactly one segment, in order."""
    segments = [map_segment(store.folder, facts).ordinals for facts in snapshot.segment_facts()]
    held = np.concatenate([np.zeros(0, np.int64), *segments])
    living, deleted = snapshot.matching_ordinals(None), snapshot.deleted_ordinals()
    distinct, counts = np.unique(held, return_counts=True)
    misplaced = np.union1d(distinct[counts > 1], held[1:][np.diff(held) < 0])
    missing = np.setdiff1d(living, held)
    lost = np.setdiff1d(held, np.union1d(living, deleted))
    gone = np.setdiff1d(deleted, held)
    ids = snapshot.ids() if misplaced.size or missing.size else {}
    sentences = []
    if misplaced.size:
        which = _list_some([ids.get(ordinal, ordinal) for ordinal in misplaced.tolist()])
        sentences.append(f"vectors are stored twice or out of order for {which} ({RESTORE})")
    if missing.size:
        which = _list_some([ids[ordinal] for ordinal in missing.tolist()])
        sentences.append(f"no vectors are stored for {which} ({RESTORE})")
    if lost.size:
        which = _list_some(lost.tolist())
        sentences.append(f"vectors are stored for lost documents: ordinal {which} ({RESTORE})")
    if gone.size:
        which = _list_some(gone.tolist())
        advice = f"`pseudoquery compact {store.folder}` puts this right"
        sentences.append(f"no vectors are stored for deleted documents: ordinal {which} ({advice})")
    return sentences


def _list_some(names: Sequence[str | int]) -> str:
    """List up to three names, and count the others."""
    listed = ", ".join(map(repr, names[:NAMED_DOCUMENTS]))
    more = len(names) - NAMED_DOCUMENTS
    return f"{listed} and {more} more" if more > 0 else listed
