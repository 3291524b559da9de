"""Rank the documents of one committed state: by meaning, by words, or by both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.search.bm25 import match_expression
from pseudoquery.search.fusion import fuse
from pseudoquery.search.settings import Mode, SearchSettings, check_search
from pseudoquery.storage.filters import Where
from pseudoquery.storage.snapshot import FolderSnapshot

if TYPE_CHECKING:
    from pseudoquery.search.structures import Structures


@dataclass(frozen=True, slots=True)
class RankedOrdinals:
    """The best documents for one query, by their ordinals in the store, best first."""

    ordinals: tuple[int, ...]
    scores: tuple[float, ...]
    certified: bool
    candidates: int


@dataclass(frozen=True, slots=True)
class RankRequest:
    """Queries, and how to answer them."""

    queries: Sequence[str]
    top: int
    where: Where | None
    exact: bool
    mode: Mode
    settings: SearchSettings


def check_request(
    queries: Sequence[str],
    top: int,
    where: Where | None,
    exact: bool,
    mode: Mode,
    settings: SearchSettings | None,
) -> RankRequest:
    """Collect what was asked, or refuse what can't be answered; one string is one query."""
    if isinstance(queries, str):
        queries = [queries]
    settings = settings or SearchSettings()
    check_search(queries, top, mode, settings)
    return RankRequest(queries, top, where, exact, mode, settings)


def rank_bm25(snapshot: FolderSnapshot, request: RankRequest) -> list[RankedOrdinals]:
    """Rank by BM25."""
    return [_rank_words(snapshot, request, query, request.top) for query in request.queries]


def rank_dense(
    snapshot: FolderSnapshot,
    request: RankRequest,
    vectors: Sequence[NDArray[np.float32]],
    structures: Structures,
    representation: Representation,
    top: int | None = None,
) -> list[RankedOrdinals]:
    """Rank by the score of the pseudo queries; `top` overrides the request's."""
    from pseudoquery.search.structures import choose_structure
    from pseudoquery.search.two_step import RecallDepth, search

    view, settings = snapshot.view, request.settings
    if not view.vector_count:
        return [RankedOrdinals((), (), certified=True, candidates=0) for _ in request.queries]
    allowed = None
    if request.where:
        allowed = np.zeros(len(view.ordinals), dtype=bool)
        matching = snapshot.matching_ordinals(request.where)
        allowed[np.searchsorted(view.ordinals, matching)] = True
    structure = choose_structure(settings.structure, view)
    if request.exact and structure != "flat" and settings.recall_vectors is None:
        structure = "flat8"  # a scan proves in one pass what no approximate structure can
    gpu_scan = None
    if settings.structure == "auto" and settings.recall_vectors is None:
        # A GPU scores all documents, of queries that are one vector, in no time.
        single = all(len(query_vectors) == 1 for query_vectors in vectors)
        gpu_scan = structures.on_gpu(view) if single else None
    rankings = search(
        view,
        gpu_scan or structures.get(structure, view),
        vectors,
        representation,
        top or request.top,
        depth=RecallDepth(settings.recall, settings.recall_vectors),
        allowed=allowed,
        exact=request.exact,
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
    snapshot: FolderSnapshot,
    request: RankRequest,
    vectors: Sequence[NDArray[np.float32]],
    structures: Structures,
    representation: Representation,
) -> list[RankedOrdinals]:
    """Fuse the two rankings; the fusion is of exact rankings if the dense ones are certified."""
    depth = max(request.settings.fusion_depth, request.top)
    dense = rank_dense(snapshot, request, vectors, structures, representation, depth)
    return [
        _fuse_rankings(ranking, _rank_words(snapshot, request, query, depth), request)
        for query, ranking in zip(request.queries, dense, strict=True)
    ]


def _rank_words(
    snapshot: FolderSnapshot, request: RankRequest, query: str, top: int
) -> RankedOrdinals:
    match = match_expression(query)
    scored = snapshot.search_fulltext(match, request.where, top) if match else []
    ordinals, scores = tuple(zip(*scored, strict=True)) or ((), ())
    return RankedOrdinals(ordinals, scores, certified=True, candidates=len(scored))


def _fuse_rankings(
    dense: RankedOrdinals, words: RankedOrdinals, request: RankRequest
) -> RankedOrdinals:
    dense_scored, words_scored = (
        list(zip(ranking.ordinals, ranking.scores, strict=True)) for ranking in (dense, words)
    )
    settings = request.settings
    fused = fuse(dense_scored, words_scored, settings.fusion, settings.weight)[: request.top]
    return RankedOrdinals(
        tuple(ordinal for ordinal, _ in fused),
        tuple(score for _, score in fused),
        dense.certified,
        dense.candidates,
    )
