"""Rank the documents of one committed state by meaning: by their vectors, then by their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.encoded import QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.method.token_codes import TokenType
from pseudoquery.records import RankedBy
from pseudoquery.search.relevance import Calibration
from pseudoquery.search.request import RankRequest
from pseudoquery.storage.filters import compile_filter
from pseudoquery.storage.snapshot import FolderSnapshot

if TYPE_CHECKING:
    from pseudoquery.search.faiss_index import FaissIndex
    from pseudoquery.search.gpu_scan import GpuScan
    from pseudoquery.search.int8_scan import Int8Scan
    from pseudoquery.search.structures import Structures

FEW = 1000
"""If a filter leaves so few documents, all of them are scored: no structure is faster."""
REMEMBERED_FILTERS = 16
"""So many filters of one state are remembered: most questions are asked with the same few."""
SELECTIVE = 1 / 8
"""If it leaves a smaller share of the documents, a scan of them is faster than a graph of all."""

Positions = NDArray[np.int64]
"""Documents, by their positions in the view."""


@dataclass(frozen=True, slots=True)
class RankedPositions:
    """The best documents for one question, by their positions in the view, best first."""

    positions: Positions
    scores: NDArray[np.float64]
    ranked_by: RankedBy
    certified: bool
    """Whether these are proven to be the best of all by this score."""
    candidates_proven: bool
    """Whether the candidates are proven to be the best of all by vectors."""
    candidates: int
    relevances: NDArray[np.float64] | None = None
    """How likely each document answers the question; None if that is not known."""


@dataclass(frozen=True)
class DenseRanker:
    """Ranks the documents of one committed state by meaning."""

    snapshot: FolderSnapshot
    request: RankRequest
    structures: Structures
    representation: Representation
    token_type: TokenType
    """The type of the codes by which the best documents are ranked; "none" for vectors alone."""
    calibration: Calibration | None = None
    """What makes relevances of scores by tokens."""

    def rank(
        self, questions: Sequence[QuestionVectors], top: int, more: Sequence[Positions] = ()
    ) -> list[RankedPositions]:
        """Rank the best documents for each question, by tokens if that is asked for.

        `more` are documents, for each question, to rank by tokens with those that vectors find.
        """
        from pseudoquery.search.structures import choose_structure

        # Few documents need no structure, but a wrong name is refused all the same.
        choose_structure(self.request.settings.structure, self.snapshot.view)
        if self.token_type == "none":
            return self._by_vectors(questions, top, exact=self.request.exact)
        rankings = dict(enumerate(self._by_tokens(questions, top, more)))
        # A question of no tokens, such as one of invisible characters, can't be compared by them.
        without = [row for row, question in enumerate(questions) if not len(question.tokens)]
        silent = [questions[row] for row in without]
        rankings |= zip(
            without, self._by_vectors(silent, top, exact=self.request.exact), strict=True
        )
        return [rankings[row] for row in range(len(questions))]

    def _by_vectors(
        self, questions: Sequence[QuestionVectors], top: int, *, exact: bool
    ) -> list[RankedPositions]:
        """Rank by the score of the pseudo queries."""
        from pseudoquery.search.two_step import RecallDepth, search

        view, settings = self.snapshot.view, self.request.settings
        if not view.vector_count or not questions:
            return [_nothing()] * len(questions)
        vectors = [question.vectors for question in questions]
        rankings = search(
            view,
            self._structure(vectors, exact=exact),
            vectors,
            self.representation,
            top,
            depth=RecallDepth(settings.recall, settings.recall_vectors),
            allowed=self._allowed,
            exact=exact,
        )
        return [
            RankedPositions(
                ranking.documents,
                ranking.scores,
                "vectors",
                ranking.certified,
                ranking.certified,
                ranking.candidates,
            )
            for ranking in rankings
        ]

    def _structure(
        self, queries: Sequence[NDArray[np.float32]], *, exact: bool
    ) -> FaissIndex | Int8Scan | GpuScan | None:
        """Choose what recalls documents; None if so few are allowed that all are scored."""
        from pseudoquery.search.structures import choose_structure

        view, settings = self.snapshot.view, self.request.settings
        if settings.structure == "auto" and settings.recall_vectors is None:
            # A GPU scores all documents, of queries that are one vector, in no time.
            single = all(len(query) == 1 for query in queries)
            if single and (gpu_scan := self.structures.on_gpu(view)):
                return gpu_scan
        name = choose_structure(settings.structure, view)
        if exact and name != "flat" and settings.recall_vectors is None:
            name = "flat8"  # a scan proves in one pass what no approximate structure can
        if self._allowed is not None and not name.startswith("flat"):
            # An approximate structure gets lost among documents that the filter leaves out.
            allowed = int((self._allowed & view.live).sum())
            if allowed <= FEW:
                return None
            if allowed < SELECTIVE * len(view.ordinals):
                name = "flat8"
        return self.structures.get(name, view)

    def _by_tokens(
        self, questions: Sequence[QuestionVectors], top: int, more: Sequence[Positions]
    ) -> list[RankedPositions]:
        """Rank the best documents by vectors, or all of them if it must be exact, by tokens."""
        from pseudoquery.search.token_rank import TokenRanker

        view = self.snapshot.view
        share = self.request.settings.vector_share
        ranker = TokenRanker(view, self.token_type, self.representation, share)
        live = view.live if self._allowed is None else view.live & self._allowed
        everything = np.flatnonzero(live & (view.token_counts > 0))
        depth = max(self.request.settings.token_depth, top)
        if self.request.exact or len(everything) <= depth:
            candidates, proven = [everything] * len(questions), [True] * len(questions)
        else:
            best = self._by_vectors(questions, depth, exact=False)
            candidates = [ranking.positions for ranking in best]
            proven = [ranking.certified for ranking in best]
        rankings = []
        for row, question in enumerate(questions):
            positions = np.union1d(candidates[row], more[row]) if more else candidates[row]
            documents, scores = ranker.rank(question, positions)
            certified = len(documents) == len(everything)
            relevances = self.calibration.relevances(scores) if self.calibration else None
            rankings.append(
                RankedPositions(
                    documents,
                    scores,
                    "tokens",
                    certified,
                    proven[row],
                    len(documents),
                    relevances,
                )
            )
        return rankings

    @cached_property
    def _allowed(self) -> NDArray[np.bool_] | None:
        """Which documents satisfy the filter; None if there is none."""
        if not self.request.where:
            return None
        view = self.snapshot.view
        key = repr(compile_filter(self.request.where))
        allowed = view.filtered.get(key)
        if allowed is None:
            allowed = np.zeros(len(view.ordinals), dtype=bool)
            matching = self.snapshot.matching_ordinals(self.request.where)
            allowed[np.searchsorted(view.ordinals, matching)] = True
            if len(view.filtered) >= REMEMBERED_FILTERS:
                view.filtered.clear()
            view.filtered[key] = allowed
        return allowed


def _nothing() -> RankedPositions:
    return RankedPositions(np.zeros(0, np.int64), np.zeros(0), "vectors", True, True, 0)
