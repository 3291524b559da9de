"""The GPU's K-means against the reference, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.triton_device import (  # skips all of this where kernels can't run
    DEVICE,
    INTERPRETED,
)

import triton  # isort: skip
import triton.language as tl
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pseudoquery.method import kmeans as reference
from pseudoquery.method import kmeans_gpu as gpu_kmeans
from pseudoquery.method import kmeans_kernel
from pseudoquery.method.kmeans import Clusters, kmeans, seed_ranks
from pseudoquery.method.representation import Seeding

# The interpreter multiplies bfloat16 numbers as if they were integers.
DTYPES = [torch.float16] + [torch.bfloat16] * (DEVICE == "cuda")
SEEDINGS: list[Seeding] = ["equal-interval", "released", "random"]
few = settings(max_examples=6 if INTERPRETED else 50, deadline=None)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "runs_kernels", lambda *_: False)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).float()


def integers(seed: int, highest: int, *shape: int) -> Tensor:
    numbers = np.random.default_rng(seed).integers(-highest, highest + 1, size=shape)
    return torch.from_numpy(numbers).float()


def real_tokens(lengths: list[int]) -> Tensor:
    """Weights of 1 for so many tokens of each document, and 0 behind them."""
    return (torch.arange(max(*lengths, 1)) < torch.tensor(lengths)[:, None]).float()


def some_weights(seed: int, lengths: list[int], kind: str) -> Tensor:
    """Weights of either type, with padding inside documents and behind them.

    Those which are numbers are eighths: their sums are exact, so that every order of adding them
    puts a token in the same position.
    """
    weights = real_tokens(lengths) * integers(seed, 4, len(lengths), max(*lengths, 1)).abs()
    return weights > 0 if kind == "bool" else weights / 8


def cluster(
    tokens: Tensor,
    weights: Tensor,
    k: int,
    ranks: Tensor | None,
    steps: int,
    locality: float = 0.0,
) -> Clusters:
    there = None if ranks is None else ranks.to(DEVICE)
    found = gpu_kmeans.cluster(tokens.to(DEVICE), weights.to(DEVICE), k, there, steps, locality)
    return Clusters(*(one.cpu() for one in found))


def with_kernels(tokens: Tensor, weights: Tensor, k: int, **options: Any) -> Clusters:
    """Cluster as `kmeans` does where there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "runs_kernels", lambda *_: True)
        patch.setattr(gpu_kmeans, "shared_memory", lambda _: 227 << 10)
        assert gpu_kmeans.fits(tokens, k)
        found = kmeans(tokens.to(DEVICE), weights.to(DEVICE), k, **options)
    return Clusters(*(one.cpu() for one in found))


def check(found: Clusters, expected: Clusters) -> None:
    assert found.assignments.tolist() == expected.assignments.tolist()
    torch.testing.assert_close(found.counts, expected.counts)
    assert found.centroids.dtype == expected.centroids.dtype
    # One rounding of the mean at the end, to the type of the tokens.
    near = max(1e-5, 1.5 * torch.finfo(found.centroids.dtype).eps)
    torch.testing.assert_close(
        found.centroids.float(), expected.centroids.float(), atol=near, rtol=near
    )


def nearest_tie(tokens: Tensor, weights: Tensor, k: int, ranks: Tensor, steps: int) -> float:
    """How near any token comes to a tie that is none, or two means to being equal, on the way."""
    nearest = np.inf
    for own, mass, seed in zip(tokens, weights, ranks, strict=True):
        points, mass = own[mass > 0].double(), mass[mass > 0].double()
        if not len(points):
            continue
        means = points[seed.clamp(max=len(points) - 1)].unique(dim=0)
        for _ in range(steps + 1):
            distances = torch.cdist(points, means, compute_mode="donot_use_mm_for_euclid_dist") ** 2
            if len(means) > 1:
                two = distances.topk(2, largest=False).values
                nearest = min(nearest, float((two[:, 1] - two[:, 0]).min()))
            labels = distances.argmin(dim=1)
            member = torch.nn.functional.one_hot(labels, len(means)).double() * mass[:, None]
            there = member.sum(dim=0) > 0
            means = (member.mT @ points)[there] / member.sum(dim=0)[there, None]
            if len(means) > 1:
                nearest = min(nearest, float(torch.pdist(means).min()))
    return nearest


@pytest.mark.parametrize("dtype", DTYPES)
def test_seeds_ties_and_duplicates_are_the_references(dtype: torch.dtype) -> None:
    """Small integers are exact, so that every tie is one: the first assignment must be equal."""

    @few
    @given(
        seed=seeds,
        lengths=st.lists(st.integers(0, 40), min_size=1, max_size=3).filter(any),
        k=st.integers(1, 12),
        highest=st.integers(0, 3),
    )
    def run(seed: int, lengths: list[int], k: int, highest: int) -> None:
        weights = real_tokens(lengths)
        tokens = integers(seed, highest, *weights.shape, 4).to(dtype)
        weights *= integers(seed, 2, *weights.shape).abs()
        check(cluster(tokens, weights, k, None, 0), kmeans(tokens, weights, k, iterations=0))

    run()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_agrees_with_the_reference(dtype: torch.dtype, seeding: Seeding) -> None:
    @few
    @given(
        seed=seeds,
        lengths=st.lists(st.integers(0, 150), min_size=1, max_size=2).filter(any),
        dimension=st.sampled_from([8, 100, 128]),
        k=st.sampled_from([1, 5, 8, 9]),
        steps=st.sampled_from([1, 3, 20]),
        weighted=st.booleans(),
    )
    def run(
        seed: int, lengths: list[int], dimension: int, k: int, steps: int, weighted: bool
    ) -> None:
        weights = real_tokens(lengths)
        tokens = normal(seed, *weights.shape, dimension).to(dtype)
        weights *= normal(seed + 1, *weights.shape) > -1  # some in the middle are padding, too
        if weighted:
            weights *= normal(seed + 2, *weights.shape).abs() + 0.1
        ranks = seed_ranks(weights > 0, k, seeding)
        assume(nearest_tie(tokens, weights, k, ranks, steps) > 1e-4)
        expected = kmeans(tokens, weights, k, seeding=seeding, iterations=steps)
        given_ranks = None if seeding == "equal-interval" else ranks
        own = weights if weighted else weights > 0
        check(cluster(tokens, own, k, given_ranks, steps), expected)

    run()


def deviations_are_clear(tokens: Tensor, weights: Tensor) -> bool:
    """Say whether each document's deviation is clearly nearer to one number in bfloat16."""
    for own, mass in zip(tokens.double(), weights.double(), strict=True):
        share = mass / mass.sum().clamp(min=1e-9)
        deviation = (share @ (own - share @ own).square().sum(dim=1)).sqrt()
        near = torch.tensor([0.99999, 1.0, 1.00001], dtype=torch.float64) * deviation
        if len(set(near.to(torch.bfloat16).tolist())) > 1:
            return False
    return True


def check_places(tokens: Tensor, weights: Tensor, k: int, locality: float) -> None:
    found = gpu_kmeans.find_positions(tokens.to(DEVICE), weights.to(DEVICE), k, locality).cpu()
    expected = reference._with_positions(tokens, weights, k, locality)[..., -1]
    assert found.dtype == expected.dtype
    assert found[weights > 0].tolist() == expected[weights > 0].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_places_are_the_references(dtype: torch.dtype, kind: str) -> None:
    @few
    @given(
        seed=seeds,
        lengths=st.lists(st.integers(0, 300), min_size=1, max_size=3).filter(any),
        dimension=st.sampled_from([1, 8, 128, 300]),
        k=st.integers(1, 12),
        locality=st.sampled_from([0.5, 2.0, 50.0]),
        far=st.sampled_from([0.0, 100.0]),
        outlier=st.booleans(),
    )
    def run(
        seed: int,
        lengths: list[int],
        dimension: int,
        k: int,
        locality: float,
        far: float,
        outlier: bool,
    ) -> None:
        weights = some_weights(seed, lengths, kind)
        tokens = normal(seed, *weights.shape, dimension) + far
        if outlier:
            tokens[:, lengths[0] - 1] += 1000
        tokens = tokens.to(dtype)
        assume(deviations_are_clear(tokens, weights))
        check_places(tokens, weights, k, locality)

    run()


def test_places_too_large_for_half_precision_are_its_largest_number() -> None:
    tokens = torch.tensor([60000.0, -60000.0] * 6).half()[None, :, None]
    weights = torch.ones(1, 12)
    assert reference._with_positions(tokens, weights, 6, 4.0)[..., -1].max() == 65504
    check_places(tokens, weights, 6, 4.0)
    assert with_kernels(tokens, weights, 6, locality=4.0).centroids.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_agrees_with_the_reference_by_place(
    dtype: torch.dtype, kind: str, seeding: Seeding
) -> None:
    @few
    @given(
        seed=seeds,
        lengths=st.lists(st.integers(0, 100), min_size=1, max_size=2).filter(any),
        dimension=st.sampled_from([8, 100, 128]),
        k=st.sampled_from([1, 5, 8, 9]),
        steps=st.sampled_from([0, 1, 20]),
        locality=st.sampled_from([0.5, 2.0, 50.0]),
    )
    def run(
        seed: int, lengths: list[int], dimension: int, k: int, steps: int, locality: float
    ) -> None:
        weights = some_weights(seed, lengths, kind)
        tokens = normal(seed, *weights.shape, dimension).to(dtype)
        placed = reference._with_positions(tokens, weights, k, locality)
        ranks = seed_ranks(weights > 0, k, seeding)
        # The larger the positions, the larger what the two ways of rounding differ by.
        near = 1e-4 * max(1.0, locality) ** 2
        assume(nearest_tie(placed, weights, k, ranks, steps) > near)
        assume(deviations_are_clear(tokens, weights))
        options: dict[str, Any] = {"seeding": seeding, "iterations": steps, "locality": locality}
        expected = kmeans(tokens, weights, k, **options)
        check(with_kernels(tokens, weights, k, **options), expected)

    run()


@pytest.mark.parametrize("dtype", DTYPES)
def test_stretches_of_the_same_tokens_are_joined(dtype: torch.dtype) -> None:
    """The kernel joins what the reference joins, and what it misses by a last digit."""

    @few
    @given(
        seed=seeds,
        stretches=st.lists(st.integers(1, 9), min_size=2, max_size=9),
        k=st.integers(2, 9),
        locality=st.sampled_from([0.5, 2.0, 20.0]),
    )
    def run(seed: int, stretches: list[int], k: int, locality: float) -> None:
        pool, turn = normal(seed, 2, 8).to(dtype), torch.arange(len(stretches)) % 2
        tokens = pool[turn.repeat_interleave(torch.tensor(stretches))][None]
        weights = torch.ones(tokens.shape[:2])
        placed = reference._with_positions(tokens, weights, k, locality)
        ranks = seed_ranks(weights > 0, k, "equal-interval")
        assume(nearest_tie(placed, weights, k, ranks, 20) > 1e-4 * max(1.0, locality) ** 2)
        assume(deviations_are_clear(tokens, weights))
        found = with_kernels(tokens, weights, k, locality=locality)
        expected = kmeans(tokens, weights, k, locality=locality)
        labels, theirs = found.assignments[0], expected.assignments[0]
        assert (
            len(set(zip(labels.tolist(), theirs.tolist(), strict=True))) == theirs.unique().numel()
        )
        near = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(
            found.centroids[0, labels], expected.centroids[0, theirs], atol=near, rtol=near
        )
        assert found.counts[0].tolist() == torch.bincount(labels, minlength=k).tolist()
        member = torch.nn.functional.one_hot(labels).double()
        means = (member.mT @ tokens[0].double() / member.sum(dim=0)[:, None])[labels.unique()]
        assert len(means) == len(means.unique(dim=0))

    run()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("steps", [0, 20])
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_equal_tokens_have_one_place(dtype: torch.dtype, steps: int, seeding: Seeding) -> None:
    weights = some_weights(0, [70, 1, 33], "float")
    tokens = normal(0, 1, 1, 100).expand(3, 70, 100).to(dtype)
    options: dict[str, Any] = {"seeding": seeding, "iterations": steps, "locality": 50.0}
    found = with_kernels(tokens, weights, 4, **options)
    check(found, kmeans(tokens, weights, 4, **options))
    assert (found.counts[:, 1:] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_means_at_different_places_are_joined(dtype: torch.dtype) -> None:
    """However many their tokens: times the rounded 1/41, some sums of 41 are not the token."""
    one, other = normal(0, 2, 128).to(dtype)
    tokens = torch.stack([one] * 39 + [other] * 40 + [one] * 41)[None]
    found = with_kernels(tokens, torch.ones(1, 120), 3, locality=1.0)
    assert found.centroids.tolist() == torch.stack([one, other, 0 * one])[None].tolist()
    assert found.counts.tolist() == [[80, 40, 0]]
    assert found.assignments.tolist() == [[0] * 39 + [1] * 40 + [0] * 41]


@pytest.mark.parametrize("locality", [0.0, 1.0])
def test_gradient_is_each_tokens_share(locality: float) -> None:
    tokens, weights = normal(1, 1, 20, 8).half().requires_grad_(), torch.ones(1, 20)
    found = with_kernels(tokens, weights, 3, locality=locality)
    upstream = integers(2, 4, 3, 8).half()
    (gradient,) = torch.autograd.grad((found.centroids[0] * upstream).sum(), tokens)
    own = found.assignments[0]
    expected = upstream[own] / found.counts[0, own, None]
    torch.testing.assert_close(gradient[0].float(), expected.float(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("locality", [0.0, 1.0])
def test_nothing_counts_and_nothing_has_a_place(locality: float) -> None:
    found = with_kernels(torch.ones(2, 3, 4).half(), torch.zeros(2, 3), 2, locality=locality)
    assert (found.counts == 0).all()
    assert (found.centroids == 0).all()
    assert (found.assignments == -1).all()


def test_a_mean_of_zero_is_not_an_empty_cluster() -> None:
    tokens = torch.tensor([[[0.0, 0], [0, 0], [5, 5], [5, 5], [-5, -5], [-5, -5]]]).half()
    weights = torch.ones(1, 6)
    check(cluster(tokens, weights, 6, None, 20), kmeans(tokens, weights, 6))


@triton.jit
def join(centroids, counts, assignments, labels, length, k, DIM: tl.constexpr, K: tl.constexpr):
    """Do the last part of the kernel alone."""
    position = tl.arange(0, K)
    living = tl.load(counts + position, mask=position < k, other=0.0)
    kmeans_kernel._join(centroids, counts, assignments, labels, living, length, length, k, DIM, K)


def test_clusters_with_equal_means_are_joined_but_not_with_empty_ones() -> None:
    """Only a rounding can make two means equal, so this part of the kernel is called directly."""
    means = torch.tensor([[5.0, 1], [0, 0], [5, 1], [0, 0], [0, 0]], device=DEVICE)
    counts = torch.tensor([2.0, 0, 1, 3, 0], device=DEVICE)
    labels = torch.tensor([0, 2, -1, 3, 0], dtype=torch.int32, device=DEVICE)
    found = torch.full((5,), 7, device=DEVICE)
    join[(1,)](means, counts, found, labels, 5, 5, DIM=2, K=8)
    assert means.tolist() == [[5, 1], [0, 0], [0, 0], [0, 0], [0, 0]]
    assert counts.tolist() == [3, 0, 0, 3, 0]
    assert found.tolist() == [0, 0, -1, 3, 0]


def test_nothing_counts_and_nothing_is_there() -> None:
    ones = torch.ones(2, 3, 4).half()
    found = cluster(ones, torch.zeros(2, 3), 2, None, 5)
    assert (found.counts == 0).all()
    assert (found.centroids == 0).all()
    assert (found.assignments == -1).all()
    assert cluster(ones[:, :0], torch.zeros(2, 0), 2, None, 5).centroids.shape == (2, 2, 4)
    assert cluster(ones[:0], torch.zeros(0, 3), 2, None, 5).counts.shape == (0, 2)


@pytest.mark.parametrize("locality", [0.0, 2.0])
def test_a_document_does_not_depend_on_its_neighbours_and_repeats_to_the_bit(
    locality: float,
) -> None:
    weights = real_tokens([5, 64, 0, 33])
    tokens = normal(0, *weights.shape, 64).half()
    together = cluster(tokens, weights, 6, None, 5, locality)
    again = cluster(tokens, weights, 6, None, 5, locality)
    assert all(torch.equal(one, other) for one, other in zip(together, again, strict=True))
    alone = cluster(tokens[3:, :40], weights[3:, :40], 6, None, 5, locality)
    assert torch.equal(alone.centroids[0], together.centroids[3])
    assert torch.equal(alone.counts[0], together.counts[3])


def test_what_does_not_fit_is_left_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    def fitting(shared: int, dtype: torch.dtype = torch.bfloat16) -> list[tuple[int, int]]:
        monkeypatch.setattr(gpu_kmeans, "shared_memory", lambda _: shared)
        shapes = [(384, 8), (768, 8), (384, 32), (768, 16), (1024, 16), (1024, 32), (16, 1024)]
        return [
            (dimension, k)
            for dimension, k in shapes
            if gpu_kmeans.fits(torch.empty(1, 1, dimension, dtype=dtype), k)
        ]

    an_h200, an_a100 = 227 << 10, 163 << 10
    assert fitting(an_h200) == [(384, 8), (768, 8), (384, 32), (768, 16), (1024, 16)]
    assert fitting(an_a100) == [(384, 8), (768, 8), (384, 32)]
    assert not fitting(an_h200, torch.float32)
    assert not fitting(0)
