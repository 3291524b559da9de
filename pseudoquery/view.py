"""All vectors of one committed state, as arrays over the documents in order of their number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.segments import Segment


@dataclass(frozen=True, slots=True)
class View:
    """The vectors of one committed state, as arrays over all documents in order of their number."""

    generation: int
    epoch: int
    """Within an epoch vectors are only ever appended, so structures built on them can grow."""
    segments: tuple[Segment, ...]
    ordinals: NDArray[np.int64]
    """(documents,): ascending"""
    offsets: NDArray[np.int64]
    """(documents + 1,): document i has the vectors offsets[i] to offsets[i + 1]."""
    live: NDArray[np.bool_]
    """(documents,): False where the document was deleted or replaced."""
    norm: float

    @property
    def vector_count(self) -> int:
        """How many vectors there are, those of deleted documents included."""
        return int(self.offsets[-1])

    @property
    def widest(self) -> int:
        """The largest number of vectors that a document has."""
        return int(np.diff(self.offsets).max(initial=0))

    def vectors(self, start: int, stop: int) -> NDArray[np.float32]:
        """Read consecutive vectors, (stop - start, dim)."""
        parts, first = [], 0
        for segment in self.segments:
            last = first + len(segment.vectors)
            if start < last and stop > first:
                parts.append(_single(segment, slice(max(start - first, 0), stop - first)))
            first = last
        if not parts:
            return np.zeros((0, 0), dtype=np.float32)
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def vectors_of(self, documents: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read the vectors of these documents (indices into `ordinals`), one after the other."""
        return self.rows(ranges(self.offsets[documents], self.offsets[documents + 1]))

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read single vectors by their place among all, (rows, dim)."""
        bounds = np.cumsum([0] + [len(segment.vectors) for segment in self.segments])
        owner = np.searchsorted(bounds, rows, side="right") - 1
        dimension = self.segments[0].vectors.shape[1] if self.segments else 0
        result = np.empty((len(rows), dimension), dtype=np.float32)
        for number in np.unique(owner):
            mine = owner == number
            result[mine] = _single(self.segments[number], rows[mine] - bounds[number])
        return result


def _single(segment: Segment, rows: Any) -> NDArray[np.float32]:
    """Read some vectors of a segment in single precision."""
    if segment.vectors.dtype != np.float16:
        return segment.decoded(rows)
    # Numpy converts one number at a time, which takes longer than all else in a search.
    import torch

    half = np.require(segment.vectors[rows], requirements=["C", "W"])
    single: NDArray[np.float32] = torch.from_numpy(half).float().numpy()
    return single


def ranges(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """List all integers from each start to its stop: [0, 5], [2, 8] -> [0, 1, 5, 6, 7]."""
    counts = stops - starts
    total = int(counts.sum())
    shifts = starts - np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.arange(total, dtype=np.int64) + np.repeat(shifts, counts).astype(np.int64)


def make_view(
    generation: int,
    epoch: int,
    segments: tuple[Segment, ...],
    dead: NDArray[np.int64],
    norm: float,
) -> View:
    """Join segments, in order, to arrays over all documents."""
    nothing = np.zeros(0, dtype=np.int64)
    ordinals = np.concatenate([nothing, *(segment.ordinals for segment in segments)])
    counts = np.concatenate([nothing, *(segment.counts for segment in segments)])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    live = ~np.isin(ordinals, dead)
    return View(generation, epoch, segments, ordinals, offsets, live, norm)
