"""A document's pseudo queries and a question on a plane."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sentence_transformers import MultiVectorEncoder
from sklearn.decomposition import PCA

from pseudoquery.encoding.encode import encode_queries, encode_questions
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.method.presets import preset
from pseudoquery.records import Document
from pseudoquery.search.explain import explain
from pseudoquery.service.document_map import DocumentMap, map_document, plane
from pseudoquery.service.labels import labels
from tests.support.texts import encoded_document

TEXT = (
    "The king of the old city found a red book in the river. Who was the woman with the black "
    "horse?\nThey saw the moon and the sun over the north bridge! 42 birds sang a song of war."
)
DOCUMENT = Document("a", TEXT, "A title about the castle", {"n": 1})
QUERY = "what did the king find in the water"


def mapped(model: MultiVectorEncoder, document: Document, query: str | None) -> DocumentMap:
    question = None if query is None else encode_queries(model, [query])[0]
    representation = pooling_of(model).representation
    return map_document(encoded_document(model, document), question, representation)


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
    found = mapped(tiny_model, DOCUMENT, QUERY)
    (question,) = encode_questions(tiny_model, [QUERY])
    encoded = encoded_document(tiny_model, DOCUMENT)
    representation = pooling_of(tiny_model).representation
    expected = explain(QUERY, question, encoded, representation).pseudo_queries
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
    found = mapped(tiny_model, DOCUMENT, None)
    assert found.query is None
    assert {one.weight for one in found.pseudo_queries} == {None}
    asked = mapped(tiny_model, DOCUMENT, QUERY)
    assert {one.spans for one in found.pseudo_queries} == {
        one.spans for one in asked.pseudo_queries
    }


def test_a_document_without_vectors(tiny_model: MultiVectorEncoder) -> None:
    for query in (None, QUERY):
        found = mapped(tiny_model, Document("empty", ""), query)
        assert found.pseudo_queries == ()
        assert (found.query is None) == (query is None)


def test_a_question_of_many_vectors_is_one_point(tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, preset("late-interaction"), device="cpu")
    found = mapped(model, DOCUMENT, QUERY)
    assert len(found.pseudo_queries) > 30
    assert found.query
    assert sum(one.weight or 0 for one in found.pseudo_queries) == pytest.approx(1)
