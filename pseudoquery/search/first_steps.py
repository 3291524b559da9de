"""The first steps over a view's vectors: a scan in 8 bits, a scan on a GPU, the nearest vectors.

The score y of a document never exceeds its largest dot product m (Eq. 4-6: y is a weighted mean of
the dots). So whoever compares with every vector, and leaves out the smaller dots, has a bound on
the scores of the documents left out.

A scan knows more: every document's score but for a small error, `score_error_per_dot` times that of
a dot. Only documents whose estimates are that close to the n-th best have to be scored, and they
always prove the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.search.error_bounds import (
    dots_error,
    gpu_score_error,
    int8_dots_error,
    score_error_per_dot,
)
from pseudoquery.search.exact_scores import Positions
from pseudoquery.search.faiss_index import FaissIndex
from pseudoquery.search.gpu_scan import GpuScan
from pseudoquery.search.int8_scan import Int8Scan, NearestVectors
from pseudoquery.search.prove import Candidates, Queries
from pseudoquery.storage.vector_view import Selection, VectorView

BLOCK_ESTIMATES = 1 << 24
"""Estimates of a scan held at once, one for each query vector and document."""
GPU_QUERIES = 256
"""Queries asked of a GPU at once."""


@dataclass(frozen=True, slots=True)
class EveryDocument:
    """Recalls all documents that are allowed, where they are few."""

    documents: Positions

    def recall(
        self,
        queries: Queries,
        attempt: int,  # noqa: ARG002
    ) -> Iterator[Candidates[Positions]]:
        """Recall the same documents for every query; nothing is left out."""
        return (Candidates(self.documents, ceiling=None) for _ in queries)


@dataclass(frozen=True, slots=True)
class EstimatesByInt8:
    """Estimates the score of every document from vectors in 8 bits."""

    view: VectorView
    scan: Int8Scan
    settings: Representation
    top: int
    allowed: NDArray[np.bool_]

    def recall(
        self,
        queries: Queries,
        attempt: int,  # noqa: ARG002
    ) -> Iterator[Candidates[Positions]]:
        """Recall every document that can be among the best; one attempt is enough."""
        documents = np.flatnonzero(self.allowed & (np.diff(self.view.offsets) > 0))
        for block in _query_blocks(queries, len(self.allowed)):
            bounds = np.cumsum([len(query) for query in block])[:-1]
            estimates = self.scan.estimates(
                np.concatenate(block), self.settings.scale, self.settings.score, self.allowed
            )
            for query, parts in zip(block, np.split(estimates, bounds), strict=True):
                yield self._contenders(query, documents, parts.sum(axis=0)[documents])

    def _contenders(
        self, query: NDArray[np.float32], documents: Positions, estimates: NDArray[np.float32]
    ) -> Candidates[Positions]:
        """List the documents whose score may reach the n-th best."""
        if len(documents) <= self.top:
            return Candidates(documents, ceiling=None)
        errors = int8_dots_error(self.view, query, self.scan.errors[documents], self.settings)
        room = score_error_per_dot(self.view.widest, self.settings) * errors
        # A sum that overflows says nothing, so it must neither raise the bar nor rule out anything.
        unknown = ~np.isfinite(estimates)
        lowest, highest = estimates - room, estimates + room
        lowest[unknown], highest[unknown] = -np.inf, np.inf
        bar = np.partition(lowest, -self.top)[-self.top]
        contenders = documents[highest >= bar]
        ceiling = None if len(contenders) == len(documents) else _just_below(bar)
        return Candidates(contenders, ceiling)


@dataclass(frozen=True, slots=True)
class EstimatesByGpu:
    """Takes the best of a GPU's estimates; if all of them are close, another attempt takes more."""

    view: VectorView
    scan: GpuScan
    settings: Representation
    top: int
    allowed: NDArray[np.bool_]

    def recall(self, queries: Queries, attempt: int) -> Iterator[Candidates[Positions]]:
        """Recall the documents that can be among the best, if the GPU returned them all."""
        filled = self.scan.filled
        allowed = self.allowed if filled is None else self.allowed & filled
        available = int(allowed.sum())
        count = min(available, (2 * self.top + 64) * 4**attempt)
        bits = None if available == len(allowed) else allowed
        for start in range(0, len(queries), GPU_QUERIES):
            block = queries[start : start + GPU_QUERIES]
            best = self.scan.best(np.concatenate(block), self.settings, count, bits)
            for query, documents, estimates in zip(block, *best, strict=True):
                yield self._contenders(query, documents, estimates, available)

    def _contenders(
        self,
        query: NDArray[np.float32],
        documents: Positions,
        estimates: NDArray[np.float64],
        available: int,
    ) -> Candidates[Positions]:
        """List the documents whose score may reach the n-th best."""
        if not np.isfinite(estimates).all():
            # A sum that overflows says nothing: in double precision, none does.
            return Candidates(documents[:0], ceiling=np.inf)
        if len(documents) <= self.top:
            return Candidates(np.sort(documents), ceiling=None)
        room = gpu_score_error(self.view, query, self.scan.widest, self.settings)
        bar = estimates[self.top - 1] - 2 * room
        contenders = np.sort(documents[estimates >= bar])
        if len(contenders) < available:
            ceiling = _just_below(estimates[self.top - 1] - room)
            return Candidates(contenders, ceiling, enough=bool(estimates[-1] < bar))
        return Candidates(contenders, ceiling=None)


@dataclass(frozen=True, slots=True)
class OwnersOfNearestVectors:
    """Recalls the documents whose vectors have the largest dot products with the query's."""

    view: VectorView
    structure: FaissIndex | Int8Scan
    settings: Representation
    chosen: Selection
    wanted: int
    """How many documents are recalled, at least; 0 if vectors are counted instead."""
    vectors: int
    """How many vectors are used in the first attempt; in each further one, twice as many."""

    def recall(self, queries: Queries, attempt: int) -> Iterator[Candidates[Positions]]:
        """Recall documents; there are not enough if the vectors are of too few documents."""
        # Clusters of a text are alike, and a query may find several of each: it asks for more at
        # once. The second half is only used where it is needed: exact scores take time.
        likely = min(self.vectors * 2**attempt, self.chosen.vectors)
        most = min(2 * likely, self.chosen.vectors)
        nearest = self._nearest(queries, most)
        for query, (dots, positions) in zip(queries, nearest, strict=True):
            for used in (likely, most):
                documents = _owners(self.view, positions[:, :used])
                if len(documents) >= self.wanted:
                    break
            enough = len(documents) >= self.wanted or most == self.chosen.vectors
            yield Candidates(
                documents, self._ceiling(query, documents, dots[:, used - 1 : used]), enough
            )

    def _nearest(self, queries: Queries, count: int) -> Iterator[NearestVectors]:
        """Search for all vectors of all queries at once."""
        if not count:
            for query in queries:
                yield NearestVectors(query[:, :0], np.zeros((len(query), 0), np.int64))
            return
        dots, positions = self.structure.search(
            np.concatenate(list(queries)), count, self.chosen.positions
        )
        for start, stop in pairwise(accumulate((len(query) for query in queries), initial=0)):
            yield NearestVectors(dots[start:stop], positions[start:stop])

    def _ceiling(
        self, query: NDArray[np.float32], documents: Positions, floors: NDArray[np.float32]
    ) -> float | None:
        """Bound the score of any document left out, by the smallest dot found for each vector."""
        if len(documents) == self.chosen.documents:
            return None
        if not self.structure.exhaustive:
            return float(np.inf)
        bound = int8_dots_error if isinstance(self.structure, Int8Scan) else dots_error
        largest = self.settings.scale * float(floors.sum(dtype=np.float64))
        return largest + bound(self.view, query, self.structure.error, self.settings)


def _just_below(bound: np.floating[Any]) -> float:
    """Return the largest number of the same type below a bound."""
    return float(np.nextafter(bound, bound.dtype.type(-np.inf)))


def _query_blocks(queries: Queries, documents: int) -> list[list[NDArray[np.float32]]]:
    """Group queries so that the estimates of a group can be held."""
    at_once = max(1, BLOCK_ESTIMATES // max(documents, 1))
    block = np.cumsum([len(query) for query in queries]) // at_once
    groups = np.split(np.arange(len(queries)), np.flatnonzero(np.diff(block)) + 1)
    return [[queries[row] for row in group] for group in groups if len(group)]


def _owners(view: VectorView, positions: NDArray[np.int64]) -> Positions:
    """List the documents that own the vectors at these positions, each once, ascending."""
    filled = positions[positions >= 0]
    return np.unique(np.searchsorted(view.offsets, filled, side="right") - 1)
