from __future__ import annotations

import math
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sentence_transformers.util import maxsim
from torch import Tensor

from pseudoquery.method.representation import Score
from pseudoquery.method.scores import (
    contributions,
    document_score,
    max_score,
    sensitivity,
    similarity_matrix,
    softmax_score,
    weights,
    window,
)

SCORES = ("softmax", "max")
numbers = st.floats(-60, 60, allow_nan=False)
dot_lists = st.lists(numbers, min_size=1, max_size=12)
seeds = st.integers(0, 2**32 - 1)


def double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def literal_score(query: Tensor, centroids: Tensor) -> float:
    """Eq. 4-6 as they are printed: the weights, then e_d, then its dot product with e_q."""
    exponentials = [math.exp(float(query @ c)) for c in centroids]
    a = [one / sum(exponentials) for one in exponentials]
    e_d = sum((a_j * c_j for a_j, c_j in zip(a, centroids, strict=True)), torch.zeros(len(query)))
    return float(query @ e_d)


def naive_similarity(
    queries: Tensor, documents: Tensor, real_q: Tensor, real_d: Tensor, score: str, scale: float
) -> Tensor:
    result = torch.zeros(len(queries), len(documents), dtype=torch.float64)
    for q, query in enumerate(queries):
        for d, document in enumerate(documents):
            total = 0.0
            for n, vector in enumerate(query):
                if not real_q[q, n]:
                    continue
                kept = [c for j, c in enumerate(document) if real_d[d, j]]
                if not kept:
                    total = -math.inf
                elif score == "max":
                    total += max(scale * float(vector @ c) for c in kept)
                else:
                    total += literal_score(scale**0.5 * vector, scale**0.5 * torch.stack(kept))
            result[q, d] = total
    return result


# The softmax score


@given(seed=seeds, k=st.integers(1, 10), dim=st.integers(1, 8), size=st.floats(0.01, 3))
def test_softmax_score_is_the_papers(seed: int, k: int, dim: int, size: float) -> None:
    query, centroids = size * normal(seed, dim), size * normal(seed + 1, k, dim)
    score = softmax_score(centroids @ query)
    assert float(score) == pytest.approx(literal_score(query, centroids), abs=1e-9)


@given(dots=dot_lists)
def test_weights_are_a_distribution(dots: list[float]) -> None:
    a = weights(double(dots))
    assert float(a.sum()) == pytest.approx(1)
    assert (a >= 0).all()
    assert int(a.argmax()) in [j for j, s in enumerate(dots) if s >= max(dots) - 1e-9]


@given(dots=dot_lists, missing=st.integers(1, 5), data=st.data())
def test_padding_changes_no_score(dots: list[float], missing: int, data: st.DataObject) -> None:
    padded = data.draw(st.permutations(dots + [-math.inf] * missing))
    real = [s for s in padded if s > -math.inf]
    wide, narrow = double(padded), double(real)
    present = ~wide.isneginf()
    torch.testing.assert_close(softmax_score(wide), softmax_score(narrow))
    assert torch.equal(max_score(wide), max_score(narrow))
    torch.testing.assert_close(weights(wide)[present], weights(narrow))
    torch.testing.assert_close(contributions(wide)[present], contributions(narrow))
    assert (weights(wide)[~present] == 0).all()
    assert (contributions(wide)[~present] == 0).all()
    for score in SCORES:
        ours = document_score(wide[None], cast(Score, score))
        torch.testing.assert_close(ours, document_score(narrow[None], cast(Score, score)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_document_without_vectors_scores_below_all(dtype: torch.dtype) -> None:
    dots = torch.tensor([[-torch.inf, -torch.inf], [-3.0, -torch.inf]], dtype=dtype)
    assert softmax_score(dots).tolist() == [-math.inf, -3.0]
    assert max_score(dots).tolist() == [-math.inf, -3.0]
    assert weights(dots).tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert contributions(dots).tolist() == [[0.0, 0.0], [1.0, 0.0]]


@given(dots=dot_lists)
def test_huge_dots_do_not_overflow(dots: list[float]) -> None:
    score = softmax_score(1e4 * torch.tensor(dots))
    assert score.isfinite()
    assert float(score) <= 1e4 * max(dots) * (1 + 1e-5 * np.sign(max(dots))) + 1e-3


# The bound


@given(dots=dot_lists, scale=st.floats(1e-3, 1e3))
def test_score_lies_within_its_bounds(dots: list[float], scale: float) -> None:
    scaled = scale * double(dots)
    slack = 1e-9 * (1 + float(scaled.abs().max()))
    fall = float(max_score(scaled) - softmax_score(scaled))
    assert -slack <= fall <= window(len(dots)) + slack


def test_score_lies_within_its_bounds_on_many_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    for k in (1, 2, 4, 8, 16, 32):
        scale = 10 ** (4 * torch.rand(20_000, 1, generator=generator, dtype=torch.float64) - 2)
        dots = scale * torch.randn(20_000, k, generator=generator, dtype=torch.float64)
        fall = max_score(dots) - softmax_score(dots)
        assert (fall >= -1e-9).all()
        assert (fall <= window(k) + 1e-9).all()


@pytest.mark.parametrize("k", [2, 3, 4, 8, 16, 32, 1000])
def test_bound_is_attained(k: int) -> None:
    def fall(gap: float) -> float:
        dots = double([5.0] + [5.0 - gap] * (k - 1))
        return float(dots.max() - softmax_score(dots))

    worst = minimize_scalar(lambda gap: -fall(gap), bounds=(0, 30), method="bounded")
    assert -worst.fun == pytest.approx(window(k), abs=1e-6)
    assert -worst.fun <= window(k) + 1e-12


@pytest.mark.parametrize(
    ("k", "width"), [(2, 0.279), (4, 0.604), (8, 0.973), (16, 1.384), (32, 1.830)]
)
def test_window_widths(k: int, width: float) -> None:
    assert window(k) == pytest.approx(width, abs=0.001)


def test_single_vector_has_no_window() -> None:
    assert window(1) == 0.0
    assert window(0) == 0.0


# Contributions


@given(dots=dot_lists)
def test_contributions_are_the_gradient(dots: list[float]) -> None:
    moving = double(dots).requires_grad_()
    (gradient,) = torch.autograd.grad(softmax_score(moving), moving)
    torch.testing.assert_close(contributions(moving.detach()), gradient)


@given(dots=dot_lists)
def test_contributions_are_the_papers(dots: list[float]) -> None:
    a = weights(double(dots)).tolist()
    literal = [
        (1 + sum(a[i] * (dots[j] - dots[i]) for i in range(len(dots)) if i != j)) * a[j]
        for j in range(len(dots))
    ]
    torch.testing.assert_close(contributions(double(dots)), double(literal))


@given(dots=st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_contribution_is_negative_far_below_the_score(dots: list[float]) -> None:
    y = float(softmax_score(double(dots)))
    for s, r in zip(dots, contributions(double(dots)).tolist(), strict=True):
        if abs(s - (y - 1)) > 1e-9:
            assert (r < 0) == (s < y - 1)


def test_contribution_can_be_negative() -> None:
    assert contributions(torch.tensor([3.0, 0.0])).tolist()[1] < 0


@given(dots=dot_lists)
def test_contributions_sum_to_one(dots: list[float]) -> None:
    assert float(contributions(double(dots)).sum()) == pytest.approx(1)


# Several query vectors, many documents


@given(seed=seeds, n=st.integers(1, 5), k=st.integers(1, 6))
def test_maxsim_of_one_document(seed: int, n: int, k: int) -> None:
    query, document = normal(seed, n, 4), normal(seed + 1, k, 4)
    naive = sum(max(float(q @ d) for d in document) for q in query)
    score = document_score(query @ document.T, "max")
    assert float(score) == pytest.approx(naive)
    assert float(score) == pytest.approx(float(maxsim(query, document)), rel=1e-5, abs=1e-5)


def test_one_query_vector_gives_the_papers_score() -> None:
    dots = normal(1, 7, 1, 4)
    torch.testing.assert_close(document_score(dots, "softmax"), softmax_score(dots[:, 0]))
    assert not torch.allclose(document_score(dots, "softmax"), document_score(dots, "max"))


@given(
    seed=seeds,
    shape=st.tuples(*[st.integers(1, 4)] * 4),
    score=st.sampled_from(SCORES),
    scale=st.sampled_from([1.0, 0.5, 3.0]),
)
def test_similarity_matrix_is_the_naive_one(
    seed: int, shape: tuple[int, int, int, int], score: str, scale: float
) -> None:
    q, n, d, k = shape
    queries, documents = normal(seed, q, n, 3), normal(seed + 1, d, k, 3)
    real_q, real_d = normal(seed + 2, q, n) > -0.5, normal(seed + 3, d, k) > -0.5
    ours = similarity_matrix(
        queries, documents, real_q, real_d, score=cast(Score, score), scale=scale
    )
    assert ours.shape == (q, d)
    expected = naive_similarity(queries, documents, real_q, real_d, score, scale)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("score", SCORES)
def test_similarity_matrix_without_masks(score: str) -> None:
    queries, documents = normal(1, 3, 2, 4), normal(2, 5, 3, 4)
    everything = torch.ones(5, 5, dtype=torch.bool)
    plain = similarity_matrix(queries, documents, score=cast(Score, score))
    expected = naive_similarity(queries, documents, everything, everything, score, 1.0)
    torch.testing.assert_close(plain, expected)


def test_similarity_matrix_agrees_with_sentence_transformers() -> None:
    queries, documents = normal(1, 3, 4, 8).float(), normal(2, 5, 6, 8).float()
    real_q, real_d = torch.ones(3, 4).bool(), torch.ones(5, 6).bool()
    real_q[1, 2:] = False
    real_d[0, 3:] = False
    ours = similarity_matrix(queries, documents, real_q, real_d, score="max")
    torch.testing.assert_close(ours, maxsim(queries, documents, real_q, real_d))


@pytest.mark.parametrize("score", SCORES)
def test_document_without_vectors_leaves_the_gradient_finite(score: str) -> None:
    queries, documents = normal(1, 2, 1, 4), normal(2, 3, 2, 4).requires_grad_()
    real = torch.tensor([[True, True], [False, False], [True, False]])
    matrix = similarity_matrix(queries, documents, documents_mask=real, score=cast(Score, score))
    assert matrix[:, 1].isneginf().all()
    loss = torch.nn.functional.cross_entropy(matrix, torch.tensor([0, 2]))
    (gradient,) = torch.autograd.grad(loss, documents)
    assert gradient.isfinite().all()
    assert (gradient[~real] == 0).all()
    assert (gradient[0] != 0).any()


def slow_sensitivity(dots: Tensor) -> Tensor:
    """Sum the absolute derivatives of the score, by autograd."""
    dots = dots.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(softmax_score(dots).sum(), dots)
    return gradient.abs().sum(dim=-1)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8, 16, 32, 473])
def test_no_score_is_more_sensitive_than_its_bound(k: int) -> None:
    generator = torch.Generator().manual_seed(k)
    spread = 10.0 * torch.rand(5000, 1, generator=generator, dtype=torch.float64)
    dots = spread * torch.randn(5000, k, generator=generator, dtype=torch.float64)
    assert float(slow_sensitivity(dots).max()) <= sensitivity(k) + 1e-12
    # One vector against k - 1 equal ones reaches it.
    apart = torch.linspace(0, 12, 20_001, dtype=torch.float64)[:, None]
    worst = torch.cat([apart, torch.zeros(len(apart), k - 1, dtype=torch.float64)], dim=1)
    assert float(slow_sensitivity(worst).max()) == pytest.approx(sensitivity(k), abs=1e-5)


@pytest.mark.parametrize("k", [2, 4, 16])
@pytest.mark.parametrize("step", [0.01, 0.3, 2.0])
def test_scores_move_no_further_than_the_dots_let_them(k: int, step: float) -> None:
    generator = torch.Generator().manual_seed(k)
    dots = 4 * torch.randn(20_000, k, generator=generator, dtype=torch.float64)
    moves = step * (2 * torch.rand(dots.shape, generator=generator, dtype=torch.float64) - 1)
    moved = (softmax_score(dots + moves) - softmax_score(dots)).abs()
    assert float(moved.max()) <= sensitivity(k) * step
