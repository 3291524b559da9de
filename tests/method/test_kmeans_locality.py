"""Clusters that take a token's position into account."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.method.kmeans import (
    kmeans,
)
from pseudoquery.method.representation import Seeding
from tests.support.clusters import ENOUGH, normal, seedings, seeds, stretches


@given(seed=seeds, n=st.integers(1, 40), k=st.integers(1, 8), seeding=seedings)
def test_a_trace_of_locality_changes_nothing(seed: int, n: int, k: int, seeding: Seeding) -> None:
    document, ones = normal(seed, 1, n, 3), torch.ones(1, n)
    plain = kmeans(document, ones, k, seeding=seeding)
    traced = kmeans(document, ones, k, seeding=seeding, locality=1e-12)
    assert torch.equal(traced.assignments, plain.assignments)
    assert torch.equal(traced.counts, plain.counts)
    assert torch.equal(traced.centroids, plain.centroids)


@given(seed=seeds, per_cluster=st.integers(4, 20), k=st.integers(1, 8), seeding=seedings)
def test_large_locality_cuts_the_text_into_stretches(
    seed: int, per_cluster: int, k: int, seeding: Seeding
) -> None:
    n = per_cluster * k
    clusters = kmeans(
        normal(seed, 1, n, 3),
        torch.ones(1, n),
        k,
        seeding=seeding,
        iterations=ENOUGH,
        locality=1000.0,
    )
    found = stretches(clusters.assignments[0])
    assert found == clusters.counts[0].tolist()
    assert len(found) == k
    if seeding == "equal-interval":
        # Each seed begins its stretch, and Lloyd stops before it has come to its middle.
        assert min(found) >= per_cluster / 2
        assert max(found) <= per_cluster * 3 / 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_locality_cuts_half_precision_into_stretches(dtype: torch.dtype) -> None:
    clusters = kmeans(normal(1, 1, 200, 8).to(dtype), torch.ones(1, 200), 8, locality=50.0)
    assert stretches(clusters.assignments[0]) == clusters.counts[0].tolist()


def test_locality_brings_neighbours_together() -> None:
    document, ones = normal(4, 1, 120, 4), torch.ones(1, 120)
    cuts = [
        len(stretches(kmeans(document, ones, 6, locality=locality).assignments[0]))
        for locality in (0.0, 0.5, 1.0, 100.0)
    ]
    assert cuts == sorted(cuts, reverse=True)
    assert len(set(cuts)) == 4
    assert cuts[-1] == 6


def test_a_stretch_is_about_one_thing() -> None:
    # The topic changes after 16 of 40 tokens. By its content alone, the second token belongs to
    # the second topic; by its position alone, so would the 20th and not the 17th.
    document = torch.zeros(1, 40, 2)
    document[0, :16, 0] = document[0, 16:, 1] = 10.0
    document[0, 1] = torch.tensor([4.9, 5.1])
    found = {
        locality: stretches(kmeans(document, torch.ones(1, 40), 2, locality=locality).assignments)
        for locality in (0.0, 0.5, 1000.0)
    }
    assert found[0.0] == [1, 1, 14, 24]
    assert found[0.5] == [16, 24]
    assert found[1000.0] == [19, 21]


@given(
    seed=seeds,
    n=st.integers(1, 40),
    k=st.integers(1, 8),
    power=st.integers(-12, 12),
    locality=st.floats(0.05, 20.0),
)
def test_the_scale_of_the_tokens_moves_none(
    seed: int, n: int, k: int, power: int, locality: float
) -> None:
    document, ones = normal(seed, 1, n, 5), torch.ones(1, n)
    plain = kmeans(document, ones, k, locality=locality)
    scaled = kmeans(document * 2.0**power, ones, k, locality=locality)
    assert torch.equal(scaled.assignments, plain.assignments)
    assert torch.equal(scaled.centroids, plain.centroids * 2.0**power)


def test_equal_means_at_different_places_are_merged() -> None:
    # As three stretches, the first and the last have the same mean.
    document = torch.tensor([[[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4 + [[1.0, 0.0]] * 4])
    clusters = kmeans(document, torch.ones(1, 12), 3, locality=1.0)
    assert clusters.centroids.tolist() == [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]
    assert clusters.counts.tolist() == [[8.0, 4.0, 0.0]]
    assert clusters.assignments.tolist() == [[0] * 4 + [1] * 4 + [0] * 4]
