from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pseudoquery.method.presets import preset
from pseudoquery.search import brute_force as exhaustive
from pseudoquery.search.brute_force import EncodedBatch, rank_all
from pseudoquery.search.exact_scores import exact_scores
from pseudoquery.storage.segments import Segment
from pseudoquery.storage.vector_view import make_view

Arrays = list[NDArray[np.float32]]


def batches(texts: Arrays, size: int, seed: int = 0) -> list[EncodedBatch]:
    """Put texts into padded batches, in any order."""
    order = np.random.default_rng(seed).permutation(len(texts)).tolist()
    made: list[EncodedBatch] = []
    for start in range(0, len(order), size):
        own = order[start : start + size]
        values = torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(texts[position]) for position in own],
            batch_first=True,
            padding_value=9.0,
        )
        counts = torch.tensor([len(texts[position]) for position in own])
        made.append((values, torch.arange(values.shape[1]) < counts[:, None], own))
    return made


@pytest.mark.parametrize("score", ["softmax", "max"])
@pytest.mark.parametrize("query_vectors", [1, 3])
@pytest.mark.parametrize("elements", [1, 1 << 24])
def test_agrees_with_exact_scores(
    score: str, query_vectors: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(exhaustive.ELEMENTS, "cpu", elements)
    chance = np.random.default_rng(0)
    documents: Arrays = [
        chance.standard_normal((count, 8)).astype(np.float32)
        for count in chance.integers(1, 6, size=40)
    ]
    queries: Arrays = [
        chance.standard_normal((query_vectors, 8)).astype(np.float32) for _ in range(7)
    ]
    settings = preset("recommended", score=score, scale=2.0)
    counts = np.array([len(own) for own in documents], dtype=np.int64)
    segment = Segment(np.concatenate(documents), np.arange(40, dtype=np.int64), counts)
    view = make_view(0, 0, (segment,), np.zeros(0, np.int64), 10.0)
    positions, scores = rank_all(batches(queries, 3), batches(documents, 9), settings, 15)
    assert positions.shape == scores.shape == (7, 15)
    for query, best, found in zip(queries, positions, scores, strict=True):
        truth = exact_scores(view, query, np.arange(40), settings)
        np.testing.assert_array_equal(best, np.argsort(-truth, kind="stable")[:15])
        np.testing.assert_allclose(found, truth[best], rtol=1e-4, atol=1e-4)


def test_a_document_without_vectors_comes_last() -> None:
    documents: Arrays = [np.zeros((0, 2), np.float32), np.array([[-1.0, 0.0]], np.float32)]
    queries: Arrays = [np.array([[1.0, 0.0]], np.float32)]
    settings = preset("recommended")
    positions, scores = rank_all(batches(queries, 1), batches(documents, 2), settings, 5)
    assert positions.tolist() == [[1, 0]]
    assert scores[0, 1] == -np.inf


def test_equal_documents_come_in_corpus_order() -> None:
    documents: Arrays = [np.ones((1, 2), np.float32)] * 6
    found, _ = rank_all(
        batches(documents[:2], 1), batches(documents, 2, seed=3), preset("recommended"), 4
    )
    assert found.tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("score", ["softmax", "max"])
def test_mixed_precision_changes_nothing(score: str) -> None:
    """A training mines under autocast; eight digits of a score decide between documents."""
    chance = np.random.default_rng(0)
    texts: Arrays = [chance.standard_normal((3, 8)).astype(np.float32) for _ in range(9)]
    settings = preset("recommended", score=score, scale=2.0)
    expected = rank_all(batches(texts[:2], 2), batches(texts, 4), settings, 5)
    with torch.autocast("cpu", torch.bfloat16):
        found = rank_all(batches(texts[:2], 2), batches(texts, 4), settings, 5)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
