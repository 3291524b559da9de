"""Rank the documents of one committed state: by meaning, by words, or by both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.encoded import QuestionVectors
from pseudoquery.records import RankedBy
from pseudoquery.search.bm25 import match_expression
from pseudoquery.search.dense import DenseRanker, RankedPositions
from pseudoquery.search.fusion import fuse
from pseudoquery.search.request import RankRequest
from pseudoquery.storage.snapshot import FolderSnapshot
from pseudoquery.storage.vector_view import VectorView

WITH_WORDS: dict[RankedBy, RankedBy] = {
    "tokens": "tokens and words",
    "vectors": "vectors and words",
}


@dataclass(frozen=True, slots=True)
class RankedOrdinals:
    """The best documents for one query, by their ordinals in the store, best first."""

    ordinals: tuple[int, ...]
    scores: tuple[float, ...]
    certified: bool
    candidates: int
    ranked_by: RankedBy = "vectors"
    candidates_proven: bool = False
    relevances: tuple[float, ...] = ()
    """How likely each document answers the question; empty if that is not known."""

    def at_least(self, relevance: float | None) -> RankedOrdinals:
        """Leave out documents whose relevance is lower, or not known; None leaves out nothing."""
        if relevance is None:
            return self
        return self._only([row for row, known in enumerate(self.relevances) if known >= relevance])

    def first(self, count: int) -> RankedOrdinals:
        """Leave the best."""
        return self._only(range(min(count, len(self.ordinals))))

    def _only(self, rows: Sequence[int]) -> RankedOrdinals:
        return replace(
            self,
            ordinals=tuple(self.ordinals[row] for row in rows),
            scores=tuple(self.scores[row] for row in rows),
            relevances=tuple(self.relevances[row] for row in rows if self.relevances),
        )


def rank_bm25(snapshot: FolderSnapshot, request: RankRequest) -> list[RankedOrdinals]:
    """Rank by BM25."""
    return [_rank_words(snapshot, request, query, request.top) for query in request.queries]


def rank_dense(ranker: DenseRanker, questions: Sequence[QuestionVectors]) -> list[RankedOrdinals]:
    """Rank by meaning."""
    top, least = ranker.request.top, ranker.request.settings.min_relevance
    return [
        _by_ordinal(ranker.snapshot.view, _shorten(ranking, top)).at_least(least)
        for ranking in ranker.rank(questions, top)
    ]


def rank_hybrid(ranker: DenseRanker, questions: Sequence[QuestionVectors]) -> list[RankedOrdinals]:
    """Fuse a ranking by meaning and one by words.

    The fusion is of exact rankings if those by meaning are certified. Documents that only words
    have found are ranked by tokens, too.
    """
    snapshot, request = ranker.snapshot, ranker.request
    depth = max(request.settings.fusion_depth, request.top)
    words = [_rank_words(snapshot, request, query, depth) for query in request.queries]
    positions = [_positions_of(snapshot.view, ranking.ordinals) for ranking in words]
    dense = [
        _by_ordinal(snapshot.view, _shorten(ranking, depth, more))
        for ranking, more in zip(ranker.rank(questions, depth, positions), positions, strict=True)
    ]
    return [_fuse_rankings(*pair, request) for pair in zip(dense, words, strict=True)]


def _rank_words(
    snapshot: FolderSnapshot, request: RankRequest, query: str, top: int
) -> RankedOrdinals:
    match = match_expression(query)
    scored = snapshot.search_fulltext(match, request.where, top) if match else []
    ordinals, scores = tuple(zip(*scored, strict=True)) or ((), ())
    return RankedOrdinals(ordinals, scores, True, len(scored), "words", candidates_proven=True)


def _positions_of(view: VectorView, ordinals: Sequence[int]) -> NDArray[np.int64]:
    """Find documents that have tokens in a view."""
    positions = np.searchsorted(view.ordinals, np.array(ordinals, np.int64))
    return positions[view.token_counts[positions] > 0]


def _shorten(
    ranking: RankedPositions, top: int, more: NDArray[np.int64] | None = None
) -> RankedPositions:
    """Leave the best, and more documents if they were ranked."""
    wanted = np.arange(len(ranking.positions)) < top
    if more is not None:
        wanted |= np.isin(ranking.positions, more)
    relevances = None if ranking.relevances is None else ranking.relevances[wanted]
    return replace(
        ranking,
        positions=ranking.positions[wanted],
        scores=ranking.scores[wanted],
        relevances=relevances,
    )


def _by_ordinal(view: VectorView, ranking: RankedPositions) -> RankedOrdinals:
    return RankedOrdinals(
        tuple(view.ordinals[ranking.positions].tolist()),
        tuple(ranking.scores.tolist()),
        ranking.certified,
        ranking.candidates,
        ranking.ranked_by,
        ranking.candidates_proven,
        () if ranking.relevances is None else tuple(ranking.relevances.tolist()),
    )


def _fuse_rankings(
    dense: RankedOrdinals, words: RankedOrdinals, request: RankRequest
) -> RankedOrdinals:
    dense_scored, words_scored = (
        list(zip(ranking.ordinals, ranking.scores, strict=True)) for ranking in (dense, words)
    )
    settings = request.settings
    fused = fuse(dense_scored, words_scored, settings.fusion, settings.weight)
    # A hit is as relevant as its meaning says; words, too, would say hardly more. One without
    # tokens has nothing to compare.
    known = dict(zip(dense.ordinals, dense.relevances, strict=True)) if dense.relevances else None
    ranking = RankedOrdinals(
        tuple(ordinal for ordinal, _ in fused),
        tuple(score for _, score in fused),
        dense.certified,
        dense.candidates,
        WITH_WORDS[dense.ranked_by],
        dense.candidates_proven,
        () if known is None else tuple(known.get(ordinal, 0.0) for ordinal, _ in fused),
    )
    return ranking.at_least(settings.min_relevance).first(request.top)
