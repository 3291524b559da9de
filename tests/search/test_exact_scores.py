"""The score of a document to the last bit, whatever stands beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation, Score
from pseudoquery.method.scores import document_score
from pseudoquery.search.exact_scores import (
    dots_of,
    exact_scores,
    pseudo_query_weights,
    score_of,
)
from tests.storage.test_vector_view import view_of
from tests.support.search_cases import SCORES, Case, cases, precision, slow_score


@given(cases(), st.data())
def test_a_score_does_not_depend_on_the_other_candidates(case: Case, data: st.DataObject) -> None:
    assume(case.documents)
    query = case.queries[0]
    every = np.arange(len(case.documents))
    scores = exact_scores(case.view, query, every, case.settings)
    numbers = st.integers(0, len(every) - 1)
    some = np.array(data.draw(st.lists(numbers, min_size=1, max_size=30)), dtype=np.int64)
    np.testing.assert_array_equal(
        exact_scores(case.view, query, some, case.settings), scores[some], strict=True
    )
    for one in some[:3]:
        alone = exact_scores(case.view, query, np.array([one]), case.settings)
        assert alone.tolist() == [scores[one]]


def test_one_very_long_document_does_not_widen_the_others() -> None:
    documents = [np.ones((1, 2))] * 2000 + [np.ones((200_000, 2))]
    view = view_of(documents, dimension=2)
    query = np.ones((64, 2), dtype=np.float32)
    # Padded alike, this would take 200 GB.
    scores = exact_scores(view, query, np.arange(2000), Representation(scale=1.0))
    np.testing.assert_allclose(scores, 128.0)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dimension", [384, 129, 7])
@pytest.mark.parametrize("asked", [1, 5])
def test_a_score_does_not_depend_on_its_block(score: Score, dimension: int, asked: int) -> None:
    generator = np.random.default_rng(dimension)
    documents = [generator.normal(size=(one % 17, dimension)) for one in range(300)]
    view = view_of(documents, dimension=dimension, borders=[100], dtype="float16")
    query = generator.normal(size=(asked, dimension)).astype(np.float32)
    ours = Representation(score=score, scale=0.3)
    every = np.arange(300)
    scores = exact_scores(view, query, every, ours)
    for part in (every[:1], every[5:6], every[::7], every[::-1], every[123:260]):
        np.testing.assert_array_equal(exact_scores(view, query, part, ours), scores[part])


@given(cases(), st.integers(1, 40))
def test_a_score_does_not_depend_on_padding(case: Case, width: int) -> None:
    dimension = case.queries[0].shape[1]
    wide = view_of(
        [*case.documents, np.ones((width, dimension))],
        dimension=dimension,
        dtype=case.view.segments[0].vectors.dtype.name,
    )
    every = np.arange(len(case.documents))
    for query in case.queries:
        np.testing.assert_array_equal(
            exact_scores(wide, query, every, case.settings),
            exact_scores(case.view, query, every, case.settings),
        )


@given(case=cases())
def test_scores_equal_the_brute_force(case: Case) -> None:
    every = np.arange(len(case.documents))
    for query in case.queries:
        scores = exact_scores(case.view, query, every, case.settings)
        for document, score in zip(case.documents, scores.tolist(), strict=True):
            truth = slow_score(query, document, case.settings) if len(document) else -math.inf
            assert score == pytest.approx(truth, rel=1e-9, abs=precision(case, query))


@given(case=cases())
def test_weights_are_those_of_the_score(case: Case) -> None:
    every = np.arange(len(case.documents))
    for query in case.queries:
        weights = pseudo_query_weights(case.view, query, every, case.settings)
        assert [len(own) for own in weights] == [len(own) for own in case.documents]
        for own in weights:
            assert not own or sum(own) == pytest.approx(1.0)
        if len(query) > 1 or case.settings.score == "max":
            continue
        dots = dots_of(case.view, query, every, case.settings, max(case.view.widest, 1))[:, 0]
        scores = exact_scores(case.view, query, every, case.settings)
        for own, row, score in zip(weights, dots, scores, strict=True):
            assert not own or np.dot(own, row[: len(own)]) == pytest.approx(
                score, abs=precision(case, query)
            )


@given(
    dots=arrays(
        np.float64,
        array_shapes(min_dims=3, max_dims=3, max_side=9),
        elements=st.one_of(st.floats(-1e6, 1e6), st.just(-np.inf)),
    ),
    score=st.sampled_from(["softmax", "max"]),
)
def test_scores_are_those_of_torch(dots: NDArray[np.float64], score: Score) -> None:
    expected = document_score(torch.from_numpy(dots), score).numpy()
    np.testing.assert_allclose(score_of(dots, score), expected, rtol=1e-12, atol=1e-9)
