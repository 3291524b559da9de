"""Where K-means begins."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.method.kmeans import (
    kmeans,
    seed_positions,
)
from pseudoquery.method.representation import SEEDINGS, Seeding
from tests.support.clusters import normal, pad


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5), k=st.integers(1, 20))
def test_equal_interval_positions(lengths: list[int], k: int) -> None:
    _, weights = pad([torch.zeros(n, 1) for n in lengths])
    positions = seed_positions(weights > 0, k, "equal-interval")
    assert positions.tolist() == [[i * n // k for i in range(k)] for n in lengths]


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5), k=st.integers(1, 20))
def test_released_positions(lengths: list[int], k: int) -> None:
    _, weights = pad([torch.zeros(n, 1) for n in lengths])
    positions = seed_positions(weights > 0, k, "released")
    expected = [[min(max(i * (n // k), 1), n - 1) for i in range(k)] for n in lengths]
    assert positions.tolist() == expected


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    k=st.integers(1, 20),
    seed=st.integers(0, 2**31),
)
def test_random_positions_are_distinct_and_independent_of_the_batch(
    lengths: list[int], k: int, seed: int
) -> None:
    _, weights = pad([torch.zeros(n, 1) for n in lengths], extra=5)
    positions = seed_positions(weights > 0, k, "random", seed)
    for row, n in enumerate(lengths):
        assert len(set(positions[row].tolist())) == min(n, k)
        assert positions[row].max() < n
        alone = seed_positions(torch.ones(1, n, dtype=torch.bool), k, "random", seed)
        assert torch.equal(positions[row], alone[0])


def test_random_positions_differ_with_the_seed_and_spread_over_the_document() -> None:
    real = torch.ones(1, 100, dtype=torch.bool)
    draws = [seed_positions(real, 4, "random", seed) for seed in range(200)]
    assert len({tuple(draw[0].tolist()) for draw in draws}) > 195
    drawn = torch.cat(draws).flatten().bincount(minlength=100)
    assert drawn.min() > 0
    assert drawn.max() < 30  # 8 are expected


def test_seed_changes_the_clusters() -> None:
    document = normal(1, 50, 4)
    results = {
        tuple(
            kmeans(document[None], torch.ones(1, 50), 5, seeding="random", seed=seed)
            .assignments[0]
            .tolist()
        )
        for seed in range(5)
    }
    assert len(results) > 1


@pytest.mark.parametrize("seeding", SEEDINGS)
def test_global_random_state_is_left_alone(seeding: Seeding) -> None:
    before = torch.get_rng_state()
    first = kmeans(normal(1, 2, 20, 4), torch.ones(2, 20), 5, seeding=seeding)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    second = kmeans(normal(1, 2, 20, 4), torch.ones(2, 20), 5, seeding=seeding)
    assert torch.equal(first.centroids, second.centroids)


def test_each_seeding_gives_its_own_clusters() -> None:
    document = normal(4, 60, 4)
    results = [
        kmeans(document[None], torch.ones(1, 60), 5, seeding=seeding).centroids
        for seeding in ("equal-interval", "released", "random")
    ]
    assert not torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_unknown_seeding_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'sorted'.*equal-interval, random, released"):
        kmeans(normal(1, 1, 5, 2), torch.ones(1, 5), 2, seeding=cast(Seeding, "sorted"))
