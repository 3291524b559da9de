from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from torch import Tensor

from pseudoquery.method.kmeans import (
    _merge_duplicates,
    _with_positions,
    kmeans,
    seed_positions,
)
from pseudoquery.method.representation import SEEDINGS, Seeding
from tests.support.clusters import (
    ENOUGH,
    alive,
    cluster_one,
    distinct_rows,
    inertia,
    integers,
    lloyd,
    localities,
    nearest,
    normal,
    pad,
    seedings,
    seeds,
    stretches,
    with_positions,
)

# Against other implementations


@given(seed=seeds, n=st.integers(1, 40), dim=st.integers(1, 6), k=st.integers(1, 8))
def test_agrees_with_scikit_learn(seed: int, n: int, dim: int, k: int) -> None:
    assume(n >= k)
    document = normal(seed, n, dim)
    clusters = cluster_one(document, k)
    assume(bool((clusters.counts > 0).all()))
    positions = seed_positions(torch.ones(1, n, dtype=torch.bool), k, "equal-interval")[0]
    theirs = KMeans(
        k,
        init=document[positions].double().numpy(),
        n_init=1,
        algorithm="lloyd",
        tol=0,
        max_iter=ENOUGH,
    ).fit(document.double().numpy())  # in single precision, it takes near tokens for one
    assert clusters.assignments[0].tolist() == theirs.labels_.tolist()
    np.testing.assert_allclose(clusters.centroids[0], theirs.cluster_centers_, atol=1e-5)


@given(
    seed=seeds,
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    k=st.integers(1, 12),
    iterations=st.integers(0, 30),
    seeding=seedings,
    distinct=st.integers(1, 25),
)
def test_agrees_with_plain_loops(
    seed: int, lengths: list[int], k: int, iterations: int, seeding: Seeding, distinct: int
) -> None:
    pool = normal(seed, distinct, 3)
    choose = np.random.default_rng(seed)
    documents = [pool[choose.integers(0, distinct, size=n)] for n in lengths]
    tokens, weights = pad(documents, extra=2, filler=7.0)
    clusters = kmeans(tokens, weights, k, seeding=seeding, iterations=iterations)
    starts = seed_positions(weights > 0, k, seeding)
    for row, document in enumerate(documents):
        n = len(document)
        expected = lloyd(document.double().numpy(), np.ones(n), starts[row].tolist(), iterations)
        assert clusters.assignments[row, :n].tolist() == expected.assignments.tolist()
        assert (clusters.assignments[row, n:] == -1).all()
        np.testing.assert_array_equal(clusters.counts[row], expected.counts)
        np.testing.assert_allclose(clusters.centroids[row], expected.centroids, atol=1e-5)


@given(
    seed=seeds,
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=3),
    k=st.integers(1, 8),
    iterations=st.integers(0, 30),
    seeding=seedings,
    locality=st.floats(0.05, 20.0),
)
def test_positions_agree_with_plain_loops(
    seed: int, lengths: list[int], k: int, iterations: int, seeding: Seeding, locality: float
) -> None:
    documents = [normal(seed + i, n, 3) for i, n in enumerate(lengths)]
    tokens, weights = pad(documents, extra=2, filler=7.0)
    weights *= torch.from_numpy(np.random.default_rng(seed).integers(0, 4, size=weights.shape))
    weights[:, 0] = 1  # else there may be nothing
    clusters = kmeans(tokens, weights, k, seeding=seeding, iterations=iterations, locality=locality)
    for row in range(len(documents)):
        real = weights[row] > 0
        points, mass = tokens[row, real].double().numpy(), weights[row, real].double().numpy()
        starts = seed_positions(torch.ones(1, len(points), dtype=torch.bool), k, seeding)[0]
        placed = with_positions(points, mass, k, locality)
        found = _with_positions(tokens, weights, k, locality)[row, real, 3]
        np.testing.assert_allclose(found, placed[:, 3], rtol=1e-5, atol=1e-5 * locality)
        expected = lloyd(placed, mass, starts.tolist(), iterations)
        assert clusters.assignments[row, real].tolist() == expected.assignments.tolist()
        assert (clusters.assignments[row, ~real] == -1).all()
        np.testing.assert_array_equal(clusters.counts[row], expected.counts)
        np.testing.assert_allclose(clusters.centroids[row], expected.centroids[:, :3], atol=1e-5)


# A document's result is its own


@given(
    seed=seeds,
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    k=st.integers(1, 6),
    seeding=seedings,
    extra=st.integers(0, 9),
    filler=st.sampled_from([0.0, 1.0, -1000.0]),
    locality=localities,
)
def test_padding_and_companions_change_no_bit(
    seed: int,
    lengths: list[int],
    k: int,
    seeding: Seeding,
    extra: int,
    filler: float,
    locality: float,
) -> None:
    documents = [integers(seed + i, n, 3) for i, n in enumerate(lengths)]
    batch = kmeans(*pad(documents, extra, filler), k, seeding=seeding, locality=locality)
    for row, document in enumerate(documents):
        ones = torch.ones(1, len(document))
        alone = kmeans(document[None], ones, k, seeding=seeding, locality=locality)
        assert torch.equal(batch.centroids[row], alone.centroids[0])
        assert torch.equal(batch.counts[row], alone.counts[0])
        assert torch.equal(batch.assignments[row, : len(document)], alone.assignments[0])


@given(
    seed=seeds,
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    k=st.integers(1, 8),
    locality=localities,
)
def test_padding_and_companions_change_nothing_on_floats(
    seed: int, lengths: list[int], k: int, locality: float
) -> None:
    documents = [normal(seed + i, n, 8) for i, n in enumerate(lengths)]
    batch = kmeans(*pad(documents, 3, -5.0), k, locality=locality)
    for row, document in enumerate(documents):
        alone = kmeans(document[None], torch.ones(1, len(document)), k, locality=locality)
        assert torch.equal(batch.counts[row], alone.counts[0])
        assert torch.equal(batch.assignments[row, : len(document)], alone.assignments[0])
        torch.testing.assert_close(batch.centroids[row], alone.centroids[0])


@given(seed=seeds, order=st.permutations(range(4)), seeding=seedings, locality=localities)
def test_permuting_documents_permutes_results(
    seed: int, order: list[int], seeding: Seeding, locality: float
) -> None:
    tokens, weights = pad([normal(seed + i, n, 4) for i, n in enumerate((3, 9, 1, 14))])
    straight = kmeans(tokens, weights, 4, seeding=seeding, locality=locality)
    shuffled = kmeans(tokens[order], weights[order], 4, seeding=seeding, locality=locality)
    assert torch.equal(shuffled.assignments, straight.assignments[order])
    assert torch.equal(shuffled.counts, straight.counts[order])
    torch.testing.assert_close(shuffled.centroids, straight.centroids[order])


@pytest.mark.parametrize("locality", [0.0, 1.0, 50.0])
def test_padding_inside_a_document_is_skipped(locality: float) -> None:
    document = normal(3, 10, 4)
    weights = torch.ones(1, 14)
    weights[0, [0, 5, 6, 13]] = 0
    tokens = torch.full((1, 14, 4), 50.0)
    tokens[0, weights[0] > 0] = document
    spread = kmeans(tokens, weights, 3, locality=locality)
    dense = kmeans(document[None], torch.ones(1, 10), 3, locality=locality)
    assert torch.equal(spread.assignments[weights > 0], dense.assignments[0])
    torch.testing.assert_close(spread.centroids, dense.centroids)
    assert (spread.assignments[0, [0, 5, 6, 13]] == -1).all()


# Short, repetitive and empty documents


@given(
    seed=seeds,
    lengths=st.lists(st.integers(0, 10), min_size=1, max_size=4),
    k=st.integers(1, 12),
    seeding=seedings,
    iterations=st.integers(0, 10),
    locality=localities,
)
def test_any_document_gives_sound_clusters(
    seed: int, lengths: list[int], k: int, seeding: Seeding, iterations: int, locality: float
) -> None:
    documents = [integers(seed + i, n, 2, highest=1) for i, n in enumerate(lengths)]
    tokens, weights = pad([*documents, torch.zeros(1, 2)], filler=9.0)
    clusters = kmeans(tokens, weights, k, seeding=seeding, iterations=iterations, locality=locality)
    assert clusters.centroids.isfinite().all()
    assert torch.equal(clusters.counts.sum(1), weights.sum(1))
    for row, document in enumerate(documents):
        found = alive(clusters, row)
        assert distinct_rows(found) == len(found)
        # Stretches of equal words in other proportions have other means.
        assert len(found) <= (len(document) if locality else distinct_rows(document))
        assert (clusters.centroids[row][clusters.counts[row] == 0] == 0).all()
        for cluster in range(k):
            members = document[clusters.assignments[row, : len(document)] == cluster]
            assert len(members) == clusters.counts[row, cluster]
            if len(members):
                torch.testing.assert_close(clusters.centroids[row, cluster], members.mean(0))


@pytest.mark.parametrize("locality", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_fewer_tokens_than_clusters_gives_each_token(n: int, locality: float) -> None:
    document = normal(n, n, 5)
    clusters = kmeans(document[None], torch.ones(1, n), 8, locality=locality)
    assert torch.equal(alive(clusters), document)
    assert clusters.counts.sum() == n
    assert clusters.counts.max() == 1


@pytest.mark.parametrize("locality", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_equal_tokens_give_one_centroid(seeding: Seeding, locality: float) -> None:
    token = torch.tensor([0.1, -0.3, 0.7])
    ones = torch.ones(1, 7)
    clusters = kmeans(token.expand(1, 7, 3), ones, 4, seeding=seeding, locality=locality)
    torch.testing.assert_close(alive(clusters), token[None])
    assert clusters.counts.tolist() == [[7.0, 0.0, 0.0, 0.0]]


def test_repeated_tokens_give_one_centroid_each() -> None:
    document = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4 + [[-1.0, -1.0]] * 4)
    clusters = cluster_one(document, 6)
    assert alive(clusters).tolist() == [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
    assert clusters.counts[clusters.counts > 0].tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("locality", [0.0, 1.0])
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_empty_document_has_no_clusters(seeding: Seeding, locality: float) -> None:
    nothing = torch.zeros(2, 5)
    clusters = kmeans(normal(1, 2, 5, 3), nothing, 4, seeding=seeding, locality=locality)
    assert (clusters.counts == 0).all()
    assert (clusters.centroids == 0).all()
    assert (clusters.assignments == -1).all()


def test_cluster_whose_mean_is_zero_is_kept() -> None:
    document = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 50.0], [0.0, 50.0]])
    clusters = cluster_one(document, 2)
    assert clusters.counts.tolist() == [[2.0, 2.0]]
    assert clusters.centroids[0].tolist() == [[0.0, 0.0], [0.0, 50.0]]


def test_clusters_with_equal_means_are_merged_into_the_first() -> None:
    # Exact arithmetic never ends here; rounding can.
    points = torch.tensor([[[2.0], [0.0], [1.0], [5.0]]])
    merged = _merge_duplicates(points, torch.ones(1, 4), torch.tensor([[0, 0, 2, 1]]), 3)
    assert merged.tolist() == [[0, 0, 0, 1]]


def test_empty_cluster_does_not_swallow_one_whose_mean_is_zero() -> None:
    points = torch.tensor([[[1.0], [-1.0]]])
    merged = _merge_duplicates(points, torch.ones(1, 2), torch.tensor([[1, 1]]), 2)
    assert merged.tolist() == [[1, 1]]


def test_tie_goes_to_the_first() -> None:
    document = torch.tensor([[[0.0], [1.0], [2.0], [1.0]]])  # the seeds are 0 and 2
    clusters = kmeans(document, torch.ones(1, 4), 2, iterations=0)
    assert clusters.assignments.tolist() == [[0, 0, 1, 0]]


# Lloyd's properties


@given(seed=seeds, n=st.integers(1, 40), k=st.integers(1, 8), seeding=seedings)
def test_converged_result_is_a_fixed_point(seed: int, n: int, k: int, seeding: Seeding) -> None:
    document = normal(seed, n, 4)
    clusters = kmeans(document[None], torch.ones(1, n), k, seeding=seeding, iterations=ENOUGH)
    centroids = {
        cluster: clusters.centroids[0, cluster].double().numpy()
        for cluster in range(k)
        if clusters.counts[0, cluster] > 0
    }
    again = nearest(document.double().numpy(), centroids)
    assert again.tolist() == clusters.assignments[0].tolist()


@given(seed=seeds, n=st.integers(2, 40), k=st.integers(1, 8))
def test_iterations_never_increase_the_inertia(seed: int, n: int, k: int) -> None:
    document = normal(seed, n, 4)
    weights = torch.ones(1, n)
    losses = [
        inertia(document, kmeans(document[None], weights, k, iterations=iterations))
        for iterations in (0, 1, 2, 3, 5, 8, 20)
    ]
    for before, after in pairwise(losses):
        assert after <= before * (1 + 1e-6) + 1e-9


def test_iterations_matter() -> None:
    document = normal(5, 60, 4)
    few = kmeans(document[None], torch.ones(1, 60), 5, iterations=0)
    assert inertia(document, cluster_one(document, 5)) < inertia(document, few)


@given(seed=seeds, repeats=st.lists(st.integers(1, 4), min_size=1, max_size=15))
def test_weights_equal_repetition(seed: int, repeats: list[int]) -> None:
    document = normal(seed, len(repeats), 3)
    weights = torch.tensor([repeats], dtype=torch.float32)
    weighted = kmeans(document[None], weights, 1)
    repeated = document.repeat_interleave(torch.tensor(repeats), dim=0)
    once = kmeans(repeated[None], torch.ones(1, len(repeated)), 1)
    torch.testing.assert_close(weighted.centroids, once.centroids)
    assert weighted.counts.tolist() == once.counts.tolist() == [[float(sum(repeats))]]


@given(
    seed=seeds, weight=st.sampled_from([2.0, 3.0, 0.5]), n=st.integers(1, 30), k=st.integers(1, 5)
)
def test_the_unit_of_the_weights_moves_no_place(seed: int, weight: float, n: int, k: int) -> None:
    document, ones = normal(seed, 1, n, 3), torch.ones(1, n)
    plain = kmeans(document, ones, k, locality=1.0)
    weighted = kmeans(document, weight * ones, k, locality=1.0)
    assert torch.equal(weighted.assignments, plain.assignments)
    assert torch.equal(weighted.counts, weight * plain.counts)


@given(seed=seeds, weight=st.integers(2, 5), n=st.integers(2, 15), k=st.integers(1, 5))
def test_weights_equal_repetition_from_the_same_seeds(
    seed: int, weight: int, n: int, k: int
) -> None:
    # With every token repeated alike, the seeds i*n/k fall on the same tokens if k divides n.
    document = normal(seed, n * k, 3)
    weights = torch.full((1, n * k), float(weight))
    weighted = kmeans(document[None], weights, k, iterations=ENOUGH)
    repeated = cluster_one(document.repeat_interleave(weight, dim=0), k)
    torch.testing.assert_close(weighted.centroids, repeated.centroids)
    assert torch.equal(weighted.counts, repeated.counts)
    assert torch.equal(weighted.assignments, repeated.assignments[:, ::weight])


@given(seed=seeds, repeats=st.lists(st.integers(1, 4), min_size=8, max_size=8))
def test_uneven_weights_agree_with_plain_loops(seed: int, repeats: list[int]) -> None:
    document = normal(seed, 8, 2)
    weights = np.array(repeats, dtype=np.float64)
    clusters = kmeans(document[None], torch.from_numpy(weights)[None], 3, iterations=ENOUGH)
    expected = lloyd(document.double().numpy(), weights, [0, 2, 5], ENOUGH)
    assert clusters.assignments[0].tolist() == expected.assignments.tolist()
    np.testing.assert_array_equal(clusters.counts[0], expected.counts)
    np.testing.assert_allclose(clusters.centroids[0], expected.centroids, atol=1e-5)


# Gradient


@given(seed=seeds, n=st.integers(1, 12), k=st.integers(1, 5), locality=localities)
def test_gradient_is_each_tokens_share(seed: int, n: int, k: int, locality: float) -> None:
    document = normal(seed, 1, n, 3).requires_grad_()
    weights = torch.from_numpy(np.random.default_rng(seed).integers(1, 4, size=(1, n))).float()
    clusters = kmeans(document, weights, k, locality=locality)
    upstream = normal(seed + 1, 1, k, 3)
    (gradient,) = torch.autograd.grad((clusters.centroids * upstream).sum(), document)
    labels = clusters.assignments[0]
    shares = weights[0] / clusters.counts[0][labels]
    torch.testing.assert_close(gradient[0], shares[:, None] * upstream[0][labels])


def test_gradient_agrees_with_finite_differences() -> None:
    document = normal(2, 1, 8, 2)
    weights = torch.ones(1, 8)
    labels = kmeans(document, weights, 3).assignments

    def third(tokens: Tensor) -> Tensor:
        return kmeans(tokens, weights, 3).centroids[0].square().sum()

    moving = document.clone().requires_grad_()
    third(moving).backward()  # type: ignore[no-untyped-call]
    step = torch.zeros_like(document)
    step[0, 4, 1] = 1e-2
    assert torch.equal(kmeans(document + step, weights, 3).assignments, labels)
    assert torch.equal(kmeans(document - step, weights, 3).assignments, labels)
    slope = (third(document + step) - third(document - step)) / 2e-2
    assert moving.grad is not None
    torch.testing.assert_close(moving.grad[0, 4, 1], slope, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("locality", [0.0, 1.0])
def test_padding_gets_no_gradient_and_no_nan(locality: float) -> None:
    tokens, weights = pad([normal(1, 2, 3), normal(2, 5, 3)])
    weights[1] = 0
    tokens.requires_grad_()
    found = kmeans(tokens, weights, 4, locality=locality)
    found.centroids.square().sum().backward()  # type: ignore[no-untyped-call]
    assert tokens.grad is not None
    assert (tokens.grad[weights == 0] == 0).all()
    assert (tokens.grad[0, :2] != 0).any()
    assert tokens.grad.isfinite().all()


# Types


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    document = normal(6, 1, 30, 8).to(dtype)
    clusters = kmeans(document, torch.ones(1, 30, dtype=dtype), 4)
    assert clusters.centroids.dtype == dtype
    single = kmeans(document.float(), torch.ones(1, 30), 4)
    assert torch.equal(clusters.assignments, single.assignments)
    torch.testing.assert_close(clusters.centroids, single.centroids.to(dtype))


@pytest.mark.parametrize("locality", [0.0, 1.0])
def test_half_precision_does_not_overflow(locality: float) -> None:
    document = torch.full((1, 4, 2), 60000.0, dtype=torch.float16)
    clusters = kmeans(document, torch.ones(1, 4), 2, locality=locality)
    assert alive(clusters).tolist() == [[60000.0, 60000.0]]


def test_places_too_large_for_half_precision_are_its_largest_number() -> None:
    # The deviation is 60000: only the positions of the two middle tokens are below 65504.
    document = torch.tensor([60000.0, -60000.0] * 6, dtype=torch.float16)[None, :, None]
    clusters = kmeans(document, torch.ones(1, 12), 6, locality=4.0)
    assert clusters.centroids.isfinite().all()
    assert clusters.counts.sum() == 12
    assert set(alive(clusters).flatten().tolist()) >= {60000.0, -60000.0}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_have_places(dtype: torch.dtype) -> None:
    # A position is rounded to the type of the tokens, which moves none here.
    document = normal(6, 1, 32, 8).to(dtype)
    clusters = kmeans(document, torch.ones(1, 32, dtype=dtype), 4, locality=1.0)
    assert clusters.centroids.dtype == dtype
    single = kmeans(document.float(), torch.ones(1, 32), 4, locality=1.0)
    assert len(stretches(single.assignments[0])) > 4
    torch.testing.assert_close(clusters.centroids, single.centroids.to(dtype))


def test_a_document_that_has_converged_is_left_alone() -> None:
    """Documents that need many iterations and one that needs none, alone and together."""
    generator = torch.Generator().manual_seed(3)
    slow = torch.randn(5, 60, 4, generator=generator)
    quick = torch.arange(2.0).repeat_interleave(30)[:, None].expand(60, 4)[None] * 100
    batch = torch.cat([slow[:2], quick, slow[2:]])
    weights = torch.ones(batch.shape[:2])
    for iterations in (0, 1, 3, 100):
        together = kmeans(batch, weights, 2, iterations=iterations)
        for position, document in enumerate(batch):
            alone = kmeans(document[None], weights[:1], 2, iterations=iterations)
            assert torch.equal(together.assignments[position], alone.assignments[0])
            torch.testing.assert_close(together.centroids[position], alone.centroids[0])


def test_threads_change_nothing() -> None:
    tokens, weights = pad([normal(seed, n, 4) for seed, n in enumerate((60, 5, 40, 1, 33))])
    alone = kmeans(tokens, weights, 4)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        shared = kmeans(tokens, weights, 4)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(shared.assignments, alone.assignments)
    torch.testing.assert_close(shared.centroids, alone.centroids)
