"""Corpora and queries to search, and what a search must find in them, by brute force."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation, Score
from pseudoquery.search.exact_scores import (
    exact_scores,
)
from pseudoquery.search.faiss_index import FaissIndex
from pseudoquery.search.int8_scan import Int8Scan
from pseudoquery.search.structures import STRUCTURES
from pseudoquery.search.two_step import Ranking, RecallDepth, search
from pseudoquery.storage.vector_view import VectorView
from tests.storage.test_vector_view import stored, view_of
from tests.support.structures import build

KINDS = STRUCTURES[1:]


SCORES: tuple[Score, ...] = ("softmax", "max")


seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Case:
    """A corpus and what is asked of it."""

    documents: list[NDArray[Any]]
    view: VectorView
    queries: list[NDArray[np.float32]]
    settings: Representation
    top: int
    depth: RecallDepth
    allowed: NDArray[np.bool_] | None

    def counted(self, document: int) -> bool:
        """Say whether a document may be found at all."""
        permitted = self.allowed is None or bool(self.allowed[document])
        return permitted and bool(self.view.live[document]) and len(self.documents[document]) > 0

    def search(
        self, step: FaissIndex | Int8Scan, *, exact: bool = False, view: VectorView | None = None
    ) -> Any:
        return search(
            view or self.view,
            step,
            self.queries,
            self.settings,
            self.top,
            depth=self.depth,
            allowed=self.allowed,
            exact=exact,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a corpus with repeated vectors and repeated documents, some of them without vectors."""
    generator = np.random.default_rng(draw(seeds))
    dimension = draw(st.integers(1, 24))
    count = draw(st.integers(0, 60) | st.integers(30, 60))
    widest = draw(st.integers(1, 8))
    dtype = draw(st.sampled_from(["float16", "float32", "int8"]))
    length = 10.0 ** draw(st.floats(-3, 3))
    pool = vectors(generator, draw(st.integers(1, 200)), dimension, draw(st.booleans()))
    pool = stored(length * pool, dtype)
    documents: list[NDArray[Any]] = []
    repeats = draw(st.sampled_from([0.0, 0.3]))
    for _ in range(count):
        if documents and generator.random() < repeats:
            documents.append(documents[generator.integers(len(documents))])
        else:
            own = generator.integers(0, len(pool), generator.integers(0, widest + 1))
            documents.append(pool[own])
    share = draw(st.sampled_from([0.0, 0.1, 0.5]))
    view = view_of(
        documents,
        dimension=dimension,
        borders=draw(st.lists(st.integers(0, count), max_size=3)),
        dead=[number for number in range(count) if generator.random() < share],
        dtype=dtype,
    )
    asked = [
        (10.0 ** draw(st.floats(-3, 3)))
        * vectors(generator, draw(st.integers(1, 4)), dimension, draw(st.booleans()))
        for _ in range(draw(st.integers(1, 3)))
    ]
    permitted = draw(st.sampled_from([None, None, 0.0, 0.2, 0.8]))
    return Case(
        documents,
        view,
        [query.astype(np.float32) for query in asked],
        Representation(score=draw(st.sampled_from(SCORES)), scale=draw(st.floats(0.1, 100))),
        draw(st.integers(1, 4) | st.integers(1, 70)),
        RecallDepth(
            draw(st.integers(1, 8) | st.integers(1, 40)),
            draw(st.none() | st.none() | st.integers(1, 100)),
        ),
        None if permitted is None else generator.random(count) < permitted,
    )


def vectors(
    generator: np.random.Generator, count: int, dimension: int, coarse: bool
) -> NDArray[Any]:
    """Draw vectors; coarse ones have many dot products in common."""
    if coarse:
        return np.asarray(generator.integers(-2, 3, size=(count, dimension)) / 2)
    return np.asarray(generator.normal(size=(count, dimension)) / dimension**0.5)


def slow_score(
    query: NDArray[np.float32], document: NDArray[Any], settings: Representation
) -> float:
    """Score a document by Eq. 4-6 or MaxSim, one number after the other."""
    total = 0.0
    for vector in query.tolist():
        dots = [
            settings.scale * sum(x * y for x, y in zip(vector, own, strict=True))
            for own in document.astype(np.float64).tolist()
        ]
        if settings.score == "max":
            total += max(dots)
            continue
        exponentials = [math.exp(dot - max(dots)) for dot in dots]
        weights = [one / sum(exponentials) for one in exponentials]
        total += sum(weight * dot for weight, dot in zip(weights, dots, strict=True))
    return total


def slow_search(case: Case, query: NDArray[np.float32]) -> list[tuple[int, float]]:
    """Rank all documents that count: (document, score), best first, ties in document order."""
    scored = [
        (document, slow_score(query, own, case.settings))
        for document, own in enumerate(case.documents)
        if case.counted(document)
    ]
    return sorted(scored, key=lambda one: (-one[1], one[0]))[: case.top]


def precision(case: Case, query: NDArray[np.float32]) -> float:
    """Return what double precision can lose: far below what is left of a sum that cancels out."""
    lengths = float(np.linalg.norm(query.astype(np.float64), axis=1).sum())
    return 1e-13 * case.settings.scale * lengths * case.view.norm


def assert_exact(case: Case, query: NDArray[np.float32], ranking: Ranking) -> None:
    """Assert that a ranking is the brute force's."""
    expected = slow_search(case, query)
    room = precision(case, query)
    assert len(ranking.documents) == len(ranking.scores) == len(expected)
    for document, score, (other, truth) in zip(
        ranking.documents.tolist(), ranking.scores.tolist(), expected, strict=True
    ):
        assert score == pytest.approx(truth, rel=1e-9, abs=room)
        if document != other:
            # The same vectors in another order: only the last bit says which is the better one.
            own = slow_score(query, case.documents[document], case.settings)
            assert own == pytest.approx(truth, rel=1e-13, abs=room)
    # Among all documents' scores to the last bit, these are the best, ties in document order.
    counted = np.array(
        [number for number in range(len(case.documents)) if case.counted(number)], dtype=np.int64
    )
    scores = exact_scores(case.view, query, counted, case.settings)
    order = np.lexsort((counted, -scores))[: case.top]
    assert ranking.documents.tolist() == counted[order].tolist()
    assert ranking.scores.tolist() == scores[order].tolist()


def structure(kind: str, view: VectorView) -> FaissIndex | Int8Scan:
    """Build a structure; over no vectors at all, only a flat one can be."""
    return build(kind if view.vector_count else "flat", view)


def unit(values: NDArray[Any]) -> NDArray[np.float32]:
    result: NDArray[np.float32] = values / np.linalg.norm(values, axis=-1, keepdims=True)
    return result.astype(np.float32)


def random_view(generator: np.random.Generator, count: int, k: int, dimension: int) -> VectorView:
    documents = [unit(generator.normal(size=(k, dimension))) for _ in range(count)]
    return view_of(documents, dimension=dimension, borders=[count // 2])
