"""Scores by torch, numpy and every compiled kernel are those of one table.

The score of a GPU's kernel is in test_gpu_search.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pseudoquery.method.representation import Score
from pseudoquery.method.scores import document_score
from pseudoquery.native.choice import available_kernels
from pseudoquery.native.scan import Codes, Documents, IntegerQueries, estimate_scores_by
from pseudoquery.search.exact_scores import score_of
from tests.support.score_table import TABLE

Implementation = Callable[[NDArray[np.float64], Score], float]


def by_torch(dots: NDArray[np.float64], score: Score) -> float:
    return float(document_score(torch.from_numpy(dots)[None], score))


def by_torch_beside_padding(dots: NDArray[np.float64], score: Score) -> float:
    return by_torch(np.append(dots, [-np.inf] * 3), score)


def exactly(dots: NDArray[np.float64], score: Score) -> float:
    return float(score_of(dots[None, None], score)[0])


def exactly_beside_padding(dots: NDArray[np.float64], score: Score) -> float:
    return exactly(np.append(dots, [-np.inf] * 3), score)


def by_kernel(kernel: str) -> Implementation:
    def score_one(dots: NDArray[np.float64], score: Score) -> float:
        """Score the middle one of three documents: its vectors are the dots, in one dimension."""
        queries = IntegerQueries(np.ones((1, 1), np.int16), np.ones(1, np.float32))
        scales = np.tile(dots.astype(np.float32), 3)
        codes = Codes(np.ones((len(scales), 1), np.int8), scales)
        counts = np.full(3, len(dots))
        estimates = np.empty((1, 3), np.float32)
        documents = Documents(np.cumsum(counts) - counts, counts, np.arange(3))
        estimate_scores_by(kernel, queries, codes, documents, estimates, softmax=score == "softmax")
        return float(estimates[0, 1])

    return score_one


@pytest.mark.parametrize(
    ("implementation", "rounding"),
    [
        (by_torch, 1e-13),
        (by_torch_beside_padding, 1e-13),
        (exactly, 1e-13),
        (exactly_beside_padding, 1e-13),
        *((by_kernel(kernel), 1e-6) for kernel in available_kernels()),
    ],
)
@pytest.mark.parametrize("score", ["softmax", "max"])
@pytest.mark.parametrize(("dots", "expected"), TABLE)
def test_scores_agree(
    implementation: Implementation,
    rounding: float,
    score: Score,
    dots: list[float],
    expected: dict[Score, float],
) -> None:
    assert implementation(np.array(dots), score) == pytest.approx(
        expected[score], rel=rounding, abs=rounding
    )
