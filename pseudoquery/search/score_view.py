"""The second step over a view: some documents, or all that can matter, are scored exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.search.error_bounds import rounding_error
from pseudoquery.search.exact_scores import Positions, exact_scores, vector_counts
from pseudoquery.search.prove import Queries, RankedDocuments
from pseudoquery.storage.vector_view import VectorView

BLOCK_VECTORS = 16_384
"""Vectors compared or scored exactly at once."""


@dataclass(frozen=True, slots=True)
class ViewScorer:
    """Ranks the documents of a view, given by their positions."""

    view: VectorView
    settings: Representation
    top: int
    allowed: NDArray[np.bool_]

    def rank(
        self, query: NDArray[np.float32], documents: Positions
    ) -> tuple[Positions, NDArray[np.float64]]:
        """Score documents exactly; return the best and their scores, ties by position."""
        parts = [
            exact_scores(self.view, query, block, self.settings)
            for block in blocks_of_documents(self.view, documents)
        ]
        scores = np.concatenate([np.zeros(0), *parts])
        order = np.lexsort((documents, -scores))[: self.top]
        return documents[order], scores[order]

    def rank_all(
        self, queries: Queries, thresholds: Sequence[float]
    ) -> Iterator[RankedDocuments[Positions]]:
        """Compare with every vector once; score documents whose bound reaches the threshold."""
        nothing = np.zeros(0, dtype=np.int64)
        for query, parts in zip(queries, self._reaching(queries, thresholds), strict=True):
            documents = np.concatenate([nothing, *parts])
            ranked = self.rank(query, documents)
            yield RankedDocuments(*ranked, certified=True, candidates=len(documents))

    def _reaching(self, queries: Queries, thresholds: Sequence[float]) -> list[list[Positions]]:
        """List for each query, block by block, the documents that may reach its threshold."""
        view, scale = self.view, self.settings.scale
        flat = np.concatenate(list(queries))
        bounds = np.cumsum([0] + [len(query) for query in queries])
        slack = [len(query) * rounding_error(view, query, self.settings) for query in queries]
        reaching: list[list[Positions]] = [[] for _ in queries]
        for documents in blocks_of_documents(
            view, np.flatnonzero(self.allowed & (np.diff(view.offsets) > 0))
        ):
            vectors = view.vectors_of(documents)
            starts = np.concatenate([[0], np.cumsum(vector_counts(view, documents))[:-1]])
            largest = scale * np.maximum.reduceat(vectors @ flat.T, starts, axis=0)
            for row in range(len(queries)):
                ceilings = largest[:, bounds[row] : bounds[row + 1]].sum(axis=1, dtype=np.float64)
                reaching[row].append(documents[ceilings + slack[row] >= thresholds[row]])
        return reaching


def blocks_of_documents(view: VectorView, documents: Positions) -> list[Positions]:
    """Group documents, in order, into blocks of about BLOCK_VECTORS vectors."""
    if not len(documents):
        return []
    block = np.cumsum(vector_counts(view, documents)) // BLOCK_VECTORS
    if not block[-1]:
        return [documents]
    return np.split(documents, np.flatnonzero(np.diff(block)) + 1)
