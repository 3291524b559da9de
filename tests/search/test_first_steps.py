"""How many vectors and documents a first step recalls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.method.representation import Representation
from pseudoquery.search.error_bounds import rounding_error
from pseudoquery.search.faiss_index import FaissIndex
from pseudoquery.search.two_step import RecallDepth, search
from tests.storage.test_vector_view import view_of
from tests.support.search_cases import Case, cases, random_view, structure, unit
from tests.support.structures import build


@pytest.mark.parametrize("k", [1, 2])
def test_recall_by_vectors_is_the_papers_setting(k: int) -> None:
    generator = np.random.default_rng(k)
    view = random_view(generator, 2000, k, 8)
    number = 1000 * k // 2  # of 2000 * k
    query = unit(generator.normal(size=(1, 8)))
    dots = view.vectors(0, view.vector_count).astype(np.float64) @ query[0].astype(np.float64)
    owners = sorted(set((np.argsort(-dots)[:number] // k).tolist()))
    ranking = search(
        view, build("flat", view), [query], Representation(), 5000, depth=RecallDepth(7, number)
    )[0]
    assert sorted(ranking.documents.tolist()) == owners
    assert ranking.candidates == len(owners)


@given(case=cases(), number=st.integers(1, 100))
def test_recalled_documents_own_the_best_vectors(case: Case, number: int) -> None:
    ours = Case(
        case.documents,
        case.view,
        case.queries,
        case.settings,
        100,
        RecallDepth(1, number),
        case.allowed,
    )
    owner = np.repeat(np.arange(len(case.documents)), [len(own) for own in case.documents])
    permitted = np.array([case.counted(one) for one in owner.tolist()], dtype=bool)
    every = case.view.vectors(0, case.view.vector_count).astype(np.float64)
    rankings = ours.search(structure("flat", case.view))
    for query, ranking in zip(case.queries, rankings, strict=True):
        found = set(ranking.documents.tolist())
        surely, perhaps = set(), set()
        room = 2 * rounding_error(case.view, query, Representation(scale=1.0))
        for vector in query.astype(np.float64):
            if not permitted.any():
                continue
            dots = np.where(permitted, every @ vector, -np.inf)
            last = np.sort(dots[permitted])[::-1][:number][-1]
            surely |= set(owner[permitted & (dots > last + room)].tolist())
            perhaps |= set(owner[permitted & (dots >= last - room)].tolist())
        assert surely <= found <= perhaps
        assert ranking.candidates == len(found)


def test_depth_is_at_least_the_documents_asked_for() -> None:
    generator = np.random.default_rng(0)
    view = random_view(generator, 300, 4, 8)
    query = unit(generator.normal(size=(1, 8)))
    step = build("flat", view)
    for documents, top in ((1, 40), (40, 1), (40, 40), (120, 10)):
        ranking = search(view, step, [query], Representation(), top, depth=RecallDepth(documents))[
            0
        ]
        assert len(ranking.documents) == top
        assert max(documents, top) <= ranking.candidates < 300


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect how many vectors a structure is asked for, each time."""
    found: list[int] = []
    real = FaissIndex.search

    def counting(step: FaissIndex, queries: Any, count: int, allowed: Any) -> Any:
        found.append(count)
        return real(step, queries, count, allowed)

    monkeypatch.setattr(FaissIndex, "search", counting)
    return found


def test_recall_by_vectors_costs_an_approximate_structure_no_effort(numbers: list[int]) -> None:
    """HNSW looks as far as it is asked for: twice as far as what is used."""
    view = random_view(np.random.default_rng(0), 300, 4, 8)
    query = unit(np.ones((1, 8)))
    depth = RecallDepth(vectors=150)
    ranking = search(view, build("hnsw", view), [query], Representation(), 10, depth=depth)[0]
    assert numbers == [300]
    assert ranking.candidates <= 150


def test_many_vectors_of_few_documents_do_not_starve_the_others() -> None:
    """A document with very many good vectors must not take the places of all other candidates."""
    documents = [np.full((500, 1), 1.0), *[np.array([[0.5 - 0.01 * one]]) for one in range(30)]]
    view = view_of(documents, dimension=1)
    query = np.ones((1, 1), dtype=np.float32)
    ranking = search(
        view, build("flat", view), [query], Representation(), 10, depth=RecallDepth(20)
    )[0]
    assert ranking.documents.tolist() == list(range(10))
    assert ranking.certified


@pytest.mark.parametrize(
    ("alike", "asked", "scored"),
    [(1, [40], 20), (3, [40], 14), (4, [40], 10), (5, [40, 80], 16), (30, [40, 80, 160, 320], 11)],
)
def test_vectors_are_asked_for_until_they_are_of_enough_documents(
    numbers: list[int], alike: int, asked: list[int], scored: int
) -> None:
    """Each document has so many equal vectors; ten documents are wanted, and few more scored."""
    documents = [np.full((alike, 1), 1 - one / 100) for one in range(60)]
    view = view_of(documents, dimension=1)
    query = np.ones((1, 1), dtype=np.float32)
    ranking = search(
        view, build("flat", view), [query], Representation(), 3, depth=RecallDepth(10)
    )[0]
    assert ranking.documents.tolist() == [0, 1, 2]
    assert (numbers, ranking.candidates) == (asked, scored)
