"""A document's pseudo queries and a question on a plane."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sentence_transformers import MultiVectorEncoder
from sklearn.decomposition import PCA

from pseudoquery.encoding.model import load_model
from pseudoquery.method.presets import preset
from pseudoquery.records import Document
from pseudoquery.search.explain import explain
from pseudoquery.service.document_map import map_document, plane
from pseudoquery.service.labels import labels

TEXT = (
    "The king of the old city found a red book in the river. Who was the woman with the black "
    "horse?\nThey saw the moon and the sun over the north bridge! 42 birds sang a song of war."
)
DOCUMENT = Document("a", TEXT, "A title about the castle", {"n": 1})
QUERY = "what did the king find in the water"


@pytest.mark.parametrize(("points", "dimension"), [(3, 2), (5, 32), (17, 8), (40, 3)])
def test_plane_is_that_of_scikit_learn(points: int, dimension: int) -> None:
    vectors = np.random.default_rng(points).normal(size=(points, dimension)).astype(np.float32)
    reference = PCA(2).fit(vectors.astype(np.float64))
    expected = reference.transform(vectors.astype(np.float64))
    found, variance = plane(vectors)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9)
    assert variance == pytest.approx(reference.explained_variance_ratio_.sum())
    for axis in found.T:
        assert axis[np.abs(axis).argmax()] > 0


numbers = st.floats(-10, 10, width=32)
clouds = st.tuples(st.integers(1, 9), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=numbers)
)


@given(clouds)
def test_a_plane_shows_no_distance_larger_than_it_is(vectors: np.ndarray) -> None:
    found, variance = plane(vectors)
    assert found.shape == (len(vectors), 2)
    assert 0 <= variance <= 1 + 1e-9
    flat = np.linalg.norm(found[:, None] - found[None], axis=2)
    real = np.linalg.norm(vectors[:, None].astype(float) - vectors[None].astype(float), axis=2)
    assert (flat <= real + 1e-6 * (1 + real)).all()
    if vectors.shape[1] <= 2:
        np.testing.assert_allclose(flat, real, atol=1e-5)


def test_points_that_are_the_same_lie_in_the_middle() -> None:
    for count in (1, 4):
        found, variance = plane(np.ones((count, 5), dtype=np.float32))
        assert not found.any()
        assert variance == 1.0


def test_a_map_agrees_with_the_explanation(tiny_model: MultiVectorEncoder) -> None:
    found = map_document(tiny_model, DOCUMENT, QUERY)
    expected = explain(tiny_model, QUERY, DOCUMENT).pseudo_queries
    assert [one.spans for one in found.pseudo_queries] == [one.spans for one in expected]
    assert [one.weight for one in found.pseudo_queries] == [one.weight for one in expected]
    named = labels(TEXT, [one.spans for one in expected])
    assert [one.label for one in found.pseudo_queries] == named
    assert found.document == DOCUMENT
    assert found.query
    # The furthest from the middle, along each axis, is on the positive side.
    points = [found.query, *(one.point for one in found.pseudo_queries)]
    assert max(abs(point.x) for point in points) == max(point.x for point in points)


def test_without_a_question_there_are_no_weights(tiny_model: MultiVectorEncoder) -> None:
    found = map_document(tiny_model, DOCUMENT, None)
    assert found.query is None
    assert {one.weight for one in found.pseudo_queries} == {None}
    asked = map_document(tiny_model, DOCUMENT, QUERY)
    assert {one.spans for one in found.pseudo_queries} == {
        one.spans for one in asked.pseudo_queries
    }


def test_a_document_without_vectors(tiny_model: MultiVectorEncoder) -> None:
    for query in (None, QUERY):
        found = map_document(tiny_model, Document("empty", ""), query)
        assert found.pseudo_queries == ()
        assert (found.query is None) == (query is None)


def test_a_question_of_many_vectors_is_one_point(tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, preset("late-interaction"), device="cpu")
    found = map_document(model, DOCUMENT, QUERY)
    assert len(found.pseudo_queries) > 30
    assert found.query
    assert sum(one.weight or 0 for one in found.pseudo_queries) == pytest.approx(1)
