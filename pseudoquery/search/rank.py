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
class RankedOrdinals:
    """The best documents for one query, by their number in the store, best first."""

    numbers: tuple[int, ...]
    scores: tuple[float, ...]
    certified: bool
    candidates: int


@dataclass(frozen=True, slots=True)
class RankRequest:
    """Questions to one snapshot, and how to answer them."""

    snapshot: Snapshot
    queries: Sequence[str]
    top: int
    where: Where | None
    exact: bool
    settings: SearchSettings


def rank_bm25(asked: RankRequest) -> list[RankedOrdinals]:
    """Rank by BM25."""
    return [_rank_words(asked, query, asked.top) for query in asked.queries]


def rank_dense(
    asked: RankRequest,
    vectors: Sequence[NDArray[np.float32]],
    structures: Structures,
    representation: Representation,
    top: int | None = None,
) -> list[RankedOrdinals]:
    """Rank by the score of the pseudo queries, `top` documents unless `asked` says how many."""
    from pseudoquery.search.structures import choose_structure
    from pseudoquery.search.two_step import RecallDepth, search

    view, settings = asked.snapshot.view, asked.settings
    if not view.vector_count:
        return [RankedOrdinals((), (), certified=True, candidates=0) for _ in asked.queries]
    allowed = None
    if asked.where:
        allowed = np.zeros(len(view.ordinals), dtype=bool)
        matching = asked.snapshot.matching(asked.where)
        allowed[np.searchsorted(view.ordinals, matching)] = True
    kind = choose_structure(settings.structure, view)
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
        depth=RecallDepth(settings.recall, settings.recall_vectors),
        allowed=allowed,
        exact=asked.exact,
    )
    return [
        RankedOrdinals(
            tuple(view.ordinals[ranking.documents].tolist()),
            tuple(ranking.scores.tolist()),
            ranking.certified,
            ranking.candidates,
        )
        for ranking in rankings
    ]


def rank_hybrid(
    asked: RankRequest,
    vectors: Sequence[NDArray[np.float32]],
    structures: Structures,
    representation: Representation,
) -> list[RankedOrdinals]:
    """Fuse the two rankings; the fusion is of exact rankings if the dense ones are certified."""
    depth = max(asked.settings.fusion_depth, asked.top)
    dense = rank_dense(asked, vectors, structures, representation, depth)
    return [
        _fuse_rankings(ranked, _rank_words(asked, query, depth), asked)
        for query, ranked in zip(asked.queries, dense, strict=True)
    ]


def _rank_words(asked: RankRequest, query: str, top: int) -> RankedOrdinals:
    match = match_expression(query)
    found = asked.snapshot.fulltext(match, asked.where, top) if match else []
    numbers, scores = tuple(zip(*found, strict=True)) or ((), ())
    return RankedOrdinals(numbers, scores, certified=True, candidates=len(found))


def _fuse_rankings(
    dense: RankedOrdinals, words: RankedOrdinals, asked: RankRequest
) -> RankedOrdinals:
    dense_scored, words_scored = (
        list(zip(one.numbers, one.scores, strict=True)) for one in (dense, words)
    )
    settings = asked.settings
    fused = fuse(dense_scored, words_scored, settings.fusion, settings.weight)[: asked.top]
    return RankedOrdinals(
        tuple(number for number, _ in fused),
        tuple(score for _, score in fused),
        dense.certified,
        dense.candidates,
    )
