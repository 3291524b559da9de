"""Torch's score, and numpy's two, are those of one table; the kernel's is in test_gpu_search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pseudoquery.method.representation import Score
from pseudoquery.method.scores import document_score
from pseudoquery.search.exact_scores import score_of
from pseudoquery.search.int8_scan import score_in_single_precision
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


def in_single_precision(dots: NDArray[np.float64], score: Score) -> float:
    single = dots.astype(np.float32)[None, :, None].repeat(3, axis=2)
    return float(score_in_single_precision(single, score)[0, 1])


@pytest.mark.parametrize(
    ("implementation", "rounding"),
    [
        (by_torch, 1e-13),
        (by_torch_beside_padding, 1e-13),
        (exactly, 1e-13),
        (exactly_beside_padding, 1e-13),
        (in_single_precision, 1e-6),
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
