"""Token embeddings to pool, small enough to check by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pseudoquery.encoding.pooling import Pooling, Tokens, Vectors

KINDS = ("pseudo-queries", "cls", "mean", "first", "learnt", "random", "stretches", "tokens")


# [CLS], four words in two places, [SEP]; then a text of [CLS], one word, [SEP] and padding.
CLS, A1, A2, B1, B2, SEP = (
    [9.0, 9.0],
    [4.0, 0.0],
    [6.0, 0.0],
    [0.0, 2.0],
    [0.0, 4.0],
    [-9.0, 1.0],
)


LONG = [CLS, A1, A2, B1, B2, SEP]


SHORT = [[1.0, 1.0], [3.0, 4.0], [7.0, 7.0]]


PADDING = [99.0, -99.0]


def batch() -> Tokens:
    return Tokens(
        torch.tensor([LONG, [*SHORT, PADDING, PADDING, PADDING]]),
        torch.tensor([[1.0] * 6, [1.0] * 3 + [0.0] * 3]),
        torch.tensor([[True, False, False, False, False, True], [True, False, True] + [False] * 3]),
    )


def pooling(**settings: Any) -> Pooling:
    """Make a pooling that is plain unless told otherwise: two raw vectors of regular tokens."""
    return Pooling(dimension=2, **{"k": 2, "normalise": False, **settings})


def pooled(task: str = "document", **settings: Any) -> Vectors:
    return pooling(**settings).vectors(batch(), task)


def kept(vectors: Vectors, row: int = 0) -> list[Any]:
    return [
        pytest.approx(vector, abs=1e-6)
        for vector in vectors.values[row][vectors.mask[row]].tolist()
    ]


def random_tokens(seed: int, lengths: list[int], extra: int = 0) -> Tokens:
    rng = np.random.default_rng(seed)
    width = max(lengths) + extra
    weights = torch.zeros(len(lengths), width)
    special = torch.zeros(len(lengths), width, dtype=torch.bool)
    embeddings = torch.full((len(lengths), width, 4), 77.0)
    for row, n in enumerate(lengths):
        embeddings[row, :n] = torch.from_numpy(rng.normal(size=(n, 4))).float()
        weights[row, :n] = 1
        special[row, [0, n - 1]] = True
    return Tokens(embeddings, weights, special)
