"""All vectors of one committed state, as arrays over the documents in order of their ordinals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.token_codes import PackedDocuments
from pseudoquery.storage.segments import Segment, SegmentTokens
from pseudoquery.storage.token_layout import TokenLayout, unpack_layout

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
    filtered: dict[str, NDArray[np.bool_]] = field(default_factory=dict, compare=False)
    """(documents,): what the filters of earlier searches have left, for the same filters."""

    @property
    def vector_count(self) -> int:
        """How many vectors there are, those of deleted documents included."""
        return int(self.offsets[-1])

    @cached_property
    def widest(self) -> int:
        """The largest number of vectors that a document has."""
        return int(np.diff(self.offsets).max(initial=0))

    @cached_property
    def token_counts(self) -> NDArray[np.int64]:
        """(documents,): how many tokens of each document are known; 0 in folders of format 1."""
        nothing = np.zeros(0, dtype=np.int64)
        counts = (
            np.zeros_like(segment.counts) if segment.tokens is None else segment.tokens.counts
            for segment in self.segments
        )
        return np.concatenate([nothing, *counts])

    @property
    def token_bytes(self) -> int:
        """How many bytes the segments spend on tokens."""
        return sum(segment.tokens.bytes for segment in self.segments if segment.tokens is not None)

    @cached_property
    def _first_documents(self) -> NDArray[np.int64]:
        """The position of each segment's first document."""
        return np.cumsum([0] + [len(segment.ordinals) for segment in self.segments])[:-1]

    def packed_tokens(
        self, documents: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], PackedDocuments]]:
        """Find the codes of the documents at these positions, segment by segment.

        Each part comes with the rows of `documents` that are in it.
        """
        self._check(documents)
        owner = np.searchsorted(self._first_documents, documents, side="right") - 1
        for number in np.unique(owner).tolist():
            rows = np.flatnonzero(owner == number)
            tokens = self.segments[number].tokens
            if tokens is not None:
                inner = documents[rows] - self._first_documents[number]
                yield (
                    rows,
                    PackedDocuments(tokens.codes, tokens.code_starts[inner], tokens.counts[inner]),
                )

    def codes_of(self, document: int) -> NDArray[np.uint8]:
        """Read the codes of the tokens of the document at this position."""
        self._check(np.array([document]))
        tokens, inner = self._tokens_of(document)
        if tokens is None:
            return np.zeros(0, dtype=np.uint8)
        return tokens.codes[tokens.code_starts[inner] : tokens.code_starts[inner + 1]]

    def layout_of(self, document: int) -> TokenLayout:
        """Read where the tokens of the document at this position stand."""
        self._check(np.array([document]))
        tokens, inner = self._tokens_of(document)
        if tokens is None:
            return unpack_layout(b"", 0)
        content = tokens.layouts[tokens.layout_starts[inner] : tokens.layout_starts[inner + 1]]
        return unpack_layout(content.tobytes(), int(tokens.counts[inner]))

    def _tokens_of(self, document: int) -> tuple[SegmentTokens | None, int]:
        number = int(np.searchsorted(self._first_documents, document, side="right")) - 1
        return self.segments[number].tokens, document - int(self._first_documents[number])

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        """Where the vectors of each segment begin, and where the last ones end."""
        return np.cumsum([0] + [len(segment.vectors) for segment in self.segments])

    @cached_property
    def _unchecked(self) -> NDArray[np.bool_]:
        """(documents,): whether a document's part of its segment has yet to be compared."""
        parts = (
            np.full(len(segment.ordinals), segment.blocks is not None) for segment in self.segments
        )
        return np.concatenate([np.zeros(0, dtype=np.bool_), *parts])

    def _check(self, documents: NDArray[np.int64]) -> None:
        """Compare what is stored of documents with what was written, before it is used."""
        new = documents[self._unchecked[documents]]
        if not len(new):
            return
        owner = np.searchsorted(self._first_documents, new, side="right") - 1
        for number in np.unique(owner).tolist():
            segment, some = self.segments[number], new[owner == number]
            if segment.blocks is None:
                continue
            width, first = segment.vectors[:1].nbytes, self._bounds[number]
            ends = (self.offsets[some] - first) * width, (self.offsets[some + 1] - first) * width
            segment.blocks.check_ranges("vectors", *ends)
            if segment.tokens is not None:
                inner = some - self._first_documents[number]
                for name, starts in (
                    ("token_codes", segment.tokens.code_starts),
                    ("layouts", segment.tokens.layout_starts),
                ):
                    segment.blocks.check_ranges(name, starts[inner], starts[inner + 1])
        self._unchecked[new] = False

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
        self._check(documents)
        return self._rows(ranges(self.offsets[documents], self.offsets[documents + 1]))

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read single vectors by their position among all, (rows, dim)."""
        self._check(np.unique(np.searchsorted(self.offsets, rows, side="right") - 1))
        return self._rows(rows)

    def _rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
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
