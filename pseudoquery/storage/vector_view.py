"""All vectors of one committed state, as arrays over the documents in order of their ordinals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pseudoquery.storage.segments import Segment

TORCH_THREADS_ABOVE, CONVERTED_IN_PIECES = 1 << 15, 1 << 20
"""Torch shares out more numbers than the first among threads. It waits for them longer than they
save, if there are fewer than the second: those are converted in pieces."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a search may find of a view."""

    documents: int
    """How many documents with vectors."""
    vectors: int
    positions: NDArray[np.bool_] | None
    """(all vectors,): which ones; None for all of them."""


@dataclass(frozen=True)
class VectorView:
    """The vectors of one committed state, as arrays over all documents in order of ordinals."""

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

    @cached_property
    def widest(self) -> int:
        """The largest number of vectors that a document has."""
        return int(np.diff(self.offsets).max(initial=0))

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        """Where the vectors of each segment begin, and where the last ones end."""
        return np.cumsum([0] + [len(segment.vectors) for segment in self.segments])

    @cached_property
    def alive(self) -> Selection:
        """What a search may find when nothing is filtered; cached, as most searches need it."""
        return self.chosen(self.live)

    def chosen(self, documents: NDArray[np.bool_]) -> Selection:
        """Say what is to be found of these documents."""
        counts = np.diff(self.offsets)
        filled = int(np.count_nonzero(documents & (counts > 0)))
        if documents.all():
            return Selection(filled, self.vector_count, None)
        positions = np.repeat(documents, counts)
        return Selection(filled, int(np.count_nonzero(positions)), positions)

    def vectors(self, start: int, stop: int) -> NDArray[np.float32]:
        """Read consecutive vectors, (stop - start, dim)."""
        return self.rows(np.arange(start, stop))

    def vectors_of(self, documents: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read the vectors of the documents at these positions, one after the other."""
        return self.rows(ranges(self.offsets[documents], self.offsets[documents + 1]))

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read single vectors by their position among all, (rows, dim)."""
        bounds = self._bounds
        owner = np.searchsorted(bounds, rows, side="right") - 1
        dimension = self.segments[0].vectors.shape[1] if self.segments else 0
        result = np.empty((len(rows), dimension), dtype=np.float32)
        # Rows mostly ascend, so that those of a segment stand together.
        runs = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(runs if len(rows) else []):
            segment = owner[start]
            _read(self.segments[segment], rows[start:stop] - bounds[segment], result[start:stop])
        return result


def _read(segment: Segment, rows: NDArray[np.int64], into: NDArray[np.float32]) -> None:
    """Read some vectors of a segment in single precision."""
    if segment.vectors.dtype != np.float16:
        into[:] = segment.decoded(rows)
        return
    # Numpy converts one number at a time, which takes longer than all else in a search.
    import torch

    half = np.asarray(segment.vectors).take(rows, axis=0)
    piece = (
        max(1, TORCH_THREADS_ABOVE // max(into.shape[1], 1))
        if into.size <= CONVERTED_IN_PIECES
        else len(rows)
    )
    target, source = torch.from_numpy(into), torch.from_numpy(half)
    for start in range(0, len(rows), piece):
        target[start : start + piece].copy_(source[start : start + piece])


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
    deleted: NDArray[np.int64],
    norm: float,
) -> VectorView:
    """Join segments, in order, to arrays over all documents."""
    nothing = np.zeros(0, dtype=np.int64)
    ordinals = np.concatenate([nothing, *(segment.ordinals for segment in segments)])
    counts = np.concatenate([nothing, *(segment.counts for segment in segments)])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    live = ~np.isin(ordinals, deleted)
    return VectorView(generation, epoch, segments, ordinals, offsets, live, norm)
