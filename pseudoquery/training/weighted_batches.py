"""Batches of several datasets, each of one dataset, of some datasets more often than of others."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from sentence_transformers.base.sampler import MultiDatasetDefaultBatchSampler


class WeightedBatchSampler(MultiDatasetDefaultBatchSampler):
    """Goes through each dataset as often as its weight says in an epoch.

    With a weight of 0.5 an epoch has half of a dataset's batches, and the next epoch shuffles them
    anew. With a weight of 2 it has all of them twice.
    """

    def __init__(self, dataset: Any, *, weights: Sequence[float], **rest: Any) -> None:
        super().__init__(dataset, **rest)
        self._counts = [
            max(1, round(weight * len(sampler)))
            for weight, sampler in zip(weights, self.batch_samplers, strict=True)
        ]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the rows of each batch; the seed and the epoch alone decide which."""
        seed = self.seed + self.epoch
        if self.generator is not None:
            self.generator.manual_seed(seed)  # the samplers of the datasets shuffle with it
        order = [number for number, count in enumerate(self._counts) for _ in range(count)]
        random.Random(f"{seed}").shuffle(order)  # noqa: S311
        starts = [0, *self.dataset.cumulative_sizes]
        batches = [_repeat(sampler) for sampler in self.batch_samplers]
        for number in order:
            yield [starts[number] + row for row in next(batches[number])]

    def __len__(self) -> int:
        """Return how many batches an epoch has."""
        return sum(self._counts)


def _repeat(sampler: Any) -> Iterator[list[int]]:
    """Go through the batches of a dataset again and again, each time in another order."""
    while True:
        yield from sampler
