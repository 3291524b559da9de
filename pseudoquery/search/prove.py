"""The loop that ranks documents exactly and proves the answer, whatever recalls the candidates.

A first step recalls candidates, and bounds the score of every document that it left out. The second
step scores the candidates exactly. If the n-th best score is above that bound, or if nothing was
left out, the n best are proven to be the best of all documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Queries = Sequence[NDArray[np.float32]]
"""One array (query vectors, dim) for each query."""
Documents = TypeVar("Documents", bound=Sized)
"""How a place of storage names several documents: by positions, say, or as a list of them."""


@dataclass(frozen=True, slots=True)
class Candidates(Generic[Documents]):
    """What a first step recalled for one query."""

    documents: Documents
    ceiling: float | None
    """No document that was left out scores more; infinite if that is unknown, None if none was."""
    enough: bool = True
    """False if more documents must be recalled before it is worth while to score any."""
    may_prove_later: bool = False
    """Whether to recall more may prove the answer sooner than to compare with all documents."""


@dataclass(frozen=True, slots=True)
class RankedDocuments(Generic[Documents]):
    """The best documents for one query."""

    documents: Documents
    """Best first; of equal ones, the one that was added first."""
    scores: NDArray[np.float64]
    certified: bool
    """Whether these are proven to be the best of all."""
    candidates: int
    """How many documents were scored exactly."""


class FirstStep(Protocol[Documents]):
    """Recalls candidates for many queries at once."""

    def recall(self, queries: Queries, attempt: int) -> Iterable[Candidates[Documents]]:
        """Recall candidates for each query: the more, the higher the attempt, from 0 on."""
        ...


class SecondStep(Protocol[Documents]):
    """Scores documents exactly."""

    def rank(
        self, query: NDArray[np.float32], documents: Documents
    ) -> tuple[Documents, NDArray[np.float64]]:
        """Return the best of some documents, and their scores."""
        ...

    def rank_all(
        self, queries: Queries, thresholds: Sequence[float]
    ) -> Iterable[RankedDocuments[Documents]]:
        """Rank all documents; the n-th best of each query surely reaches its threshold."""
        ...


def rank_and_prove(
    first: FirstStep[Documents],
    second: SecondStep[Documents],
    queries: Queries,
    top: int,
    *,
    exact: bool,
) -> list[RankedDocuments[Documents]]:
    """Rank the `top` best documents for each query; if `exact`, go on until they are proven."""
    rankings: dict[int, RankedDocuments[Documents]] = {}
    pending, attempt = list(range(len(queries))), 0
    while pending:
        unfinished = []
        recalled = first.recall([queries[row] for row in pending], attempt)
        for row, candidates in zip(pending, recalled, strict=True):
            if not candidates.enough:
                unfinished.append(row)
                continue
            rankings[row] = _rank(second, queries[row], candidates, top)
            if exact and not rankings[row].certified and candidates.may_prove_later:
                unfinished.append(row)
        pending, attempt = unfinished, attempt + 1
    doubtful = [row for row in range(len(queries)) if exact and not rankings[row].certified]
    if doubtful:
        thresholds = [_threshold(rankings[row], top) for row in doubtful]
        proven = second.rank_all([queries[row] for row in doubtful], thresholds)
        rankings.update(zip(doubtful, proven, strict=True))
    return [rankings[row] for row in range(len(queries))]


def _rank(
    second: SecondStep[Documents],
    query: NDArray[np.float32],
    candidates: Candidates[Documents],
    top: int,
) -> RankedDocuments[Documents]:
    documents, scores = second.rank(query, candidates.documents)
    certified = candidates.ceiling is None or (
        len(scores) == top and float(scores[-1]) > candidates.ceiling
    )
    return RankedDocuments(documents, scores, certified, len(candidates.documents))


def _threshold(ranking: RankedDocuments[Documents], top: int) -> float:
    """Return a score that the n-th best document surely reaches."""
    return float(ranking.scores[-1]) if len(ranking.scores) == top else -np.inf
