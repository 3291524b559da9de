from __future__ import annotations

import numpy as np
import pytest
import torch

from pseudoquery import exhaustive
from pseudoquery.exhaustive import rank_all
from pseudoquery.representation import preset
from pseudoquery.search import exact_scores
from pseudoquery.segments import Segment
from pseudoquery.view import make_view


@pytest.mark.parametrize("score", ["softmax", "max"])
@pytest.mark.parametrize("query_vectors", [1, 3])
@pytest.mark.parametrize("elements", [1, 1 << 24])
def test_agrees_with_exact_scores(
    score: str, query_vectors: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(exhaustive.ELEMENTS, "cpu", elements)
    chance = np.random.default_rng(0)
    documents = [
        chance.standard_normal((count, 8)).astype(np.float32)
        for count in chance.integers(1, 6, size=40)
    ]
    queries = [chance.standard_normal((query_vectors, 8)).astype(np.float32) for _ in range(7)]
    settings = preset("recommended", score=score, scale=2.0)
    counts = np.array([len(own) for own in documents], dtype=np.int64)
    segment = Segment(np.concatenate(documents), np.arange(40, dtype=np.int64), counts)
    view = make_view(0, 0, (segment,), np.zeros(0, np.int64), 10.0)
    places, scores = rank_all(queries, documents, settings, 15, torch.device("cpu"))
    assert places.shape == scores.shape == (7, 15)
    for query, best, found in zip(queries, places, scores, strict=True):
        truth = exact_scores(view, query, np.arange(40), settings)
        np.testing.assert_array_equal(best, np.argsort(-truth, kind="stable")[:15])
        np.testing.assert_allclose(found, truth[best], rtol=1e-4, atol=1e-4)


def test_a_document_without_vectors_comes_last() -> None:
    documents = [np.zeros((0, 2), np.float32), np.array([[-1.0, 0.0]], np.float32)]
    queries = [np.array([[1.0, 0.0]], np.float32)]
    places, scores = rank_all(queries, documents, preset("recommended"), 5, torch.device("cpu"))
    assert places.tolist() == [[1, 0]]
    assert scores[0, 1] == -np.inf
