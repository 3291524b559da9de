"""Ask one committed state of an index: by meaning, by words, or both; documents by number out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.search.bm25 import match_expression
from pseudoquery.search.fusion import fuse
from pseudoquery.search.settings import SearchSettings
from pseudoquery.storage.filters import Where
from pseudoquery.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from pseudoquery.search.structures import Structures


@dataclass(frozen=True, slots=True)
class Ranked:
    """The best documents for one query, by their number in the store, best first."""

    numbers: tuple[int, ...]
    scores: tuple[float, ...]
    certified: bool
    candidates: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions to one snapshot, and how to answer them."""

    snapshot: Snapshot
    queries: Sequence[str]
    top: int
    where: Where | None
    exact: bool
    settings: SearchSettings


def by_words(asked: Asked) -> list[Ranked]:
    """Rank by BM25."""
    return [_words(asked, query, asked.top) for query in asked.queries]


def by_vectors(
    asked: Asked,
    vectors: Sequence[NDArray[np.float32]],
    structures: Structures,
    representation: Representation,
    top: int | None = None,
) -> list[Ranked]:
    """Rank by the score of the pseudo queries, `top` documents unless `asked` says how many."""
    from pseudoquery.search.structures import chosen_kind
    from pseudoquery.search.two_step import Depth, search

    view, settings = asked.snapshot.view, asked.settings
    if not view.vector_count:
        return [Ranked((), (), certified=True, candidates=0) for _ in asked.queries]
    allowed = None
    if asked.where:
        allowed = np.zeros(len(view.ordinals), dtype=bool)
        matching = asked.snapshot.matching(asked.where)
        allowed[np.searchsorted(view.ordinals, matching)] = True
    kind = chosen_kind(settings.structure, view)
    if asked.exact and kind != "flat" and settings.recall_vectors is None:
        kind = "flat8"  # a scan proves in one pass what no approximate structure can
    scanned = None
    if settings.structure == "auto" and settings.recall_vectors is None:
        # A GPU scores all documents, of queries that are one vector, in no time.
        scanned = structures.on_gpu(view) if all(len(own) == 1 for own in vectors) else None
    rankings = search(
        view,
        scanned or structures.get(kind, view),
        vectors,
        representation,
        top or asked.top,
        depth=Depth(settings.recall, settings.recall_vectors),
        allowed=allowed,
        exact=asked.exact,
    )
    return [
        Ranked(
            tuple(view.ordinals[ranking.documents].tolist()),
            tuple(ranking.scores.tolist()),
            ranking.certified,
            ranking.candidates,
        )
        for ranking in rankings
    ]


def by_both(
    asked: Asked,
    vectors: Sequence[NDArray[np.float32]],
    structures: Structures,
    representation: Representation,
) -> list[Ranked]:
    """Fuse the two rankings; the fusion is of exact rankings if the dense ones are certified."""
    depth = max(asked.settings.fusion_depth, asked.top)
    dense = by_vectors(asked, vectors, structures, representation, depth)
    return [
        _fused(ranked, _words(asked, query, depth), asked)
        for query, ranked in zip(asked.queries, dense, strict=True)
    ]


def _words(asked: Asked, query: str, top: int) -> Ranked:
    match = match_expression(query)
    found = asked.snapshot.fulltext(match, asked.where, top) if match else []
    numbers, scores = tuple(zip(*found, strict=True)) or ((), ())
    return Ranked(numbers, scores, certified=True, candidates=len(found))


def _fused(dense: Ranked, words: Ranked, asked: Asked) -> Ranked:
    dense_scored, words_scored = (
        list(zip(one.numbers, one.scores, strict=True)) for one in (dense, words)
    )
    settings = asked.settings
    fused = fuse(dense_scored, words_scored, settings.fusion, settings.weight)[: asked.top]
    return Ranked(
        tuple(number for number, _ in fused),
        tuple(score for _, score in fused),
        dense.certified,
        dense.candidates,
    )
