from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import ConcatDataset, RandomSampler

from pseudoquery.training.batches import BatchMaker
from pseudoquery.training.config import Config
from pseudoquery.training.train import train
from pseudoquery.training.weighted_batches import WeightedBatchSampler
from tests.support.collection import write_collection
from tests.support.training import same, weights


def make_sampler(sizes: list[int], shares: list[float], seed: int) -> WeightedBatchSampler:
    generator = torch.Generator()
    parts: list[Any] = [list(range(size)) for size in sizes]
    samplers = [
        DefaultBatchSampler(
            RandomSampler(part, generator=generator),
            batch_size=2,
            drop_last=True,
            generator=generator,
            seed=seed,
        )
        for part in parts
    ]
    return WeightedBatchSampler(
        ConcatDataset(parts),
        weights=shares,
        batch_samplers=samplers,
        generator=generator,
        seed=seed,
    )


@given(
    st.lists(st.tuples(st.integers(2, 20), st.floats(0.01, 3.0)), min_size=1, max_size=4),
    st.integers(0, 99),
    st.integers(0, 5),
)
def test_an_epoch_goes_through_a_dataset_as_often_as_its_weight_says(
    drawn: list[tuple[int, float]], seed: int, epoch: int
) -> None:
    sizes, shares = [size for size, _ in drawn], [share for _, share in drawn]
    sampler = make_sampler(sizes, shares, seed)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]
    assert all(len({owners[row] for row in batch}) == 1 for batch in batches), "of one dataset"
    for number, (size, share) in enumerate(drawn):
        rows = Counter(row for batch in batches for row in batch if owners[row] == number)
        expected = max(1, round(share * (size // 2)))
        assert rows.total() == 2 * expected
        if size % 2 == 0:  # else each round leaves another row out
            rounds = expected / (size // 2)
            assert max(rows.values()) - min(rows.get(row, 0) for row in rows) <= 1
            assert max(rows.values()) <= -(-rounds // 1)
    again = make_sampler(sizes, shares, seed)
    again.set_epoch(epoch)
    assert list(again) == batches, "the seed and the epoch decide"


def test_epochs_differ() -> None:
    sampler = make_sampler([40, 10], [0.5, 1.0], 0)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    assert epochs[0] != epochs[1]
    seen = [{row for batch in epoch for row in batch if row < 40} for epoch in epochs]
    assert [len(rows) for rows in seen] == [20, 20]
    assert seen[0] != seen[1], "another half"


def test_a_training_follows_the_weights(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_collection(tmp_path / "other")
    config = replace(config, train=(*config.train, f"{other}:dev"), evaluate=(), epochs=2.0)
    seen: list[int] = []
    draw = BatchMaker.make_batch

    def watch(self: BatchMaker, rows: list[int], step: int = 0) -> dict[str, Any]:
        (owner,) = {self.rows[row].set_position for row in rows}
        seen.append(owner)
        return draw(self, rows, step)

    monkeypatch.setattr(BatchMaker, "make_batch", watch)
    results = []
    cases: list[tuple[dict[str, float], list[int]]] = [
        ({}, [12, 6]),
        ({"set:train": 0.5}, [6, 6]),
        ({"other:dev": 2}, [12, 12]),
    ]
    for number, (given_weights, expected) in enumerate(cases):
        seen.clear()
        changed = replace(config, output=str(tmp_path / f"{number}"), weights=given_weights)
        results.append(weights(train(changed)))
        assert [seen.count(0), seen.count(1)] == expected
    assert not same(results[0], results[1])
    alone = replace(config, train=config.train[:1], weights={"set:train": 0.5})
    seen.clear()
    train(replace(alone, output=str(tmp_path / "alone")))
    assert len(seen) == 6
