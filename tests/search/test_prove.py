"""The proof loop alone, with first and second steps that do as they are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from pseudoquery.search.prove import Candidates, Queries, RankedDocuments, rank_and_prove

SCORES = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0}
QUERY = np.zeros((1, 1), dtype=np.float32)


@dataclass
class Scripted:
    """Recalls what each attempt is to recall, for every query, and counts the queries."""

    attempts: list[Candidates[list[str]]]
    queries: list[int] = field(default_factory=list)

    def recall(self, queries: Queries, attempt: int) -> Iterator[Candidates[list[str]]]:
        self.queries.append(len(queries))
        return iter([self.attempts[attempt]] * len(queries))


@dataclass
class Scorer:
    """Ranks by SCORES, and keeps the thresholds that it was given."""

    top: int
    thresholds: list[float] = field(default_factory=list)
    ranked: int = 0

    def rank(
        self, query: NDArray[np.float32], documents: list[str]
    ) -> tuple[list[str], NDArray[np.float64]]:
        assert query is QUERY
        self.ranked += 1
        best = sorted(documents, key=lambda document: -SCORES[document])[: self.top]
        return best, np.array([SCORES[document] for document in best])

    def rank_all(
        self, queries: Queries, thresholds: Sequence[float]
    ) -> Iterator[RankedDocuments[list[str]]]:
        self.thresholds += thresholds
        for query in queries:
            yield RankedDocuments(*self.rank(query, list(SCORES)), certified=True, candidates=4)


@pytest.mark.parametrize(
    ("documents", "ceiling", "certified"),
    [
        (["a", "b"], None, True),
        (["a"], None, True),  # fewer than asked for, but all that there are
        (["a", "b"], 1.9, True),
        (["a", "b"], 2.0, False),  # one left out may score as much, and come first
        (["a"], -5.0, False),  # one left out may be the second best
        (["a", "b"], np.inf, False),
    ],
)
def test_an_answer_is_proven_by_the_bound_on_all_others(
    documents: list[str], ceiling: float | None, certified: bool
) -> None:
    first, second = Scripted([Candidates(documents, ceiling)]), Scorer(2)
    (ranking,) = rank_and_prove(first, second, [QUERY], 2, exact=False)
    assert (ranking.certified, ranking.candidates) == (certified, len(documents))
    assert ranking.documents == documents
    assert not second.thresholds, "without `exact`, nothing else is scored"


def test_too_few_candidates_are_not_scored() -> None:
    few, more = Candidates(["a"], 9.0, enough=False), Candidates(["a", "b"], None)
    first, second = Scripted([few, few, more]), Scorer(2)
    rankings = rank_and_prove(first, second, [QUERY] * 3, 2, exact=False)
    assert [ranking.documents for ranking in rankings] == [["a", "b"]] * 3
    assert (first.queries, second.ranked) == ([3, 3, 3], 3)


@pytest.mark.parametrize(("exact", "attempts"), [(False, 1), (True, 2)])
def test_another_attempt_is_made_where_it_may_prove_the_answer(exact: bool, attempts: int) -> None:
    vague = Candidates(["b", "c"], 5.0, may_prove_later=True)
    first, second = Scripted([vague, Candidates(["a", "b", "c"], 0.5)]), Scorer(2)
    (ranking,) = rank_and_prove(first, second, [QUERY], 2, exact=exact)
    assert len(first.queries) == attempts
    assert ranking.certified == exact
    assert not second.thresholds


@pytest.mark.parametrize(("documents", "threshold"), [(["b", "c"], 1.0), (["a"], -np.inf)])
def test_exact_compares_with_all_where_nothing_else_proves(
    documents: list[str], threshold: float
) -> None:
    first, second = Scripted([Candidates(documents, 5.0)]), Scorer(2)
    (ranking,) = rank_and_prove(first, second, [QUERY], 2, exact=True)
    assert (ranking.documents, ranking.certified, ranking.candidates) == (["a", "b"], True, 4)
    assert (len(first.queries), second.thresholds) == (1, [threshold])


def test_only_unfinished_queries_are_recalled_again() -> None:
    class Uneven(Scripted):
        def recall(self, queries: Queries, attempt: int) -> Iterator[Candidates[list[str]]]:
            self.queries.append(len(queries))
            for row in range(len(queries)):
                yield Candidates([list(SCORES)[row]], None, enough=row % 2 == 0)

    first = Uneven([])
    rankings = rank_and_prove(first, Scorer(1), [QUERY] * 4, 1, exact=False)
    assert first.queries == [4, 2, 1]
    assert [ranking.documents for ranking in rankings] == [["a"], ["a"], ["c"], ["a"]]
