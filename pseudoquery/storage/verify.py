"""Find any damage to an index folder, and repair what can be made anew from the documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pseudoquery.errors import IndexFolderError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.records import Document
from pseudoquery.storage.int8_codes import are_codes_of, codes_path
from pseudoquery.storage.segment_builder import segment_of_documents
from pseudoquery.storage.segments import (
    SegmentFacts,
    facts_of,
    map_segment,
    sound_segment,
)
from pseudoquery.storage.snapshot import FolderSnapshot
from pseudoquery.storage.store import FolderStore

Encode = Callable[[Sequence[Document]], Sequence[DocumentVectors]]
NAMED_DOCUMENTS = 3
"""So many documents are named in a sentence; the others are counted."""
RESTORE = "restore the index from a backup, or build it again"


def problems(store: FolderStore) -> list[str]:
    """List what is wrong, a sentence each: files, checksums, documents, and how they agree."""
    if lost := store.lost_changes():
        # Nobody can write now; and nothing that might be evidence may be touched.
        with store.bare_snapshot() as snapshot:
            return [lost.removesuffix("."), *_problems(store, snapshot)]
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
    """Encode the documents of damaged segments again; rebuild the full text and other tables."""
    store.give_up_lost_changes()
    repaired = 0
    with store.writer() as writer:
        writer.restore_triggers()
        if not writer.check_fulltext():
            writer.reindex_fulltext()
        writer.reindex_fields()
        with store.bare_snapshot() as snapshot:
            for path in _wrong_codes(store, snapshot):
                path.unlink()  # it is made anew when it is needed
            segments = snapshot.segment_facts()
            ends = [*(facts.first for facts in segments), None][1:]
            damaged = [
                (facts, end, list(snapshot.documents_between(facts.first, end)))
                for facts, end in zip(segments, ends, strict=True)
                if _segment_problem(store, facts)
            ]
        for facts, end, documents in damaged:
            segment = segment_of_documents(
                encode([stored.document for stored in documents]),
                store.settings,
                [stored.ordinal for stored in documents],
            )
            writer.replace_segment(facts, end, segment)
            repaired += len(documents)
    return repaired


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
