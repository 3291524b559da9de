"""Which batches a service has searched in, by its own histogram."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, pairwise

_NAME = "pseudoquery_search_batch_queries"


@dataclass(frozen=True, slots=True)
class Batches:
    """How many batches there were of each range of sizes, and how many queries in all."""

    bounds: tuple[int, ...]
    """The largest size of each range."""
    counts: tuple[int, ...]
    queries: int

    def since(self, before: Batches) -> Batches:
        """Return those that came after an earlier reading."""
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return Batches(self.bounds, counts, self.queries - before.queries)

    def without_single(self, number: int) -> Batches:
        """Leave out so many batches of one query."""
        return Batches(
            self.bounds, (self.counts[0] - number, *self.counts[1:]), self.queries - number
        )

    def sizes(self) -> list[int]:
        """List sizes that fit the ranges and the number of queries, ascending.

        Each stands at the same place within its range; which place is told by their sum.
        """
        lows = [low + 1 for low, _ in pairwise((0, *self.bounds))]
        ranges = list(zip(lows, self.bounds, self.counts, strict=True))
        least = sum(low * count for low, _, count in ranges)
        most = sum(high * count for _, high, count in ranges)
        if not least <= self.queries <= most:
            raise ValueError(f"{self.queries} queries do not fit into {ranges}")
        part = (self.queries - least) / (most - least) if most > least else 0.0
        sizes = [low + part * (high - low) for low, high, count in ranges for _ in range(count)]
        # What rounding leaves over goes on to the next, so that the sum is right.
        sums = [0, *(round(one) for one in accumulate(sizes))]
        return [after - before for before, after in pairwise(sums)]


def read_batches(metrics: str) -> Batches:
    """Read the histogram from what the service tells Prometheus; no batch may exceed its bounds."""
    upto = [
        (float(bound), int(float(count)))
        for bound, count in re.findall(rf'^{_NAME}_bucket{{le="(.+?)"}} (\S+)', metrics, re.M)
    ]
    counts = [count - before for before, count in pairwise([0, *(count for _, count in upto)])]
    if counts.pop():
        raise ValueError(f"a batch had more than {upto[-2][0]:g} queries")
    (queries,) = re.findall(rf"^{_NAME}_sum (\S+)", metrics, re.M)
    return Batches(tuple(int(bound) for bound, _ in upto[:-1]), tuple(counts), int(float(queries)))
