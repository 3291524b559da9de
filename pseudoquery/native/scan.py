"""Scores of documents, estimated in one pass over vectors in 8 bits.

A query's numbers are integers of 16 bits, so its dot product with a code is an exact integer of 32
bits. Two scales make it a real one, and the dots of a document's vectors make its score. Only these
last steps round, in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudoquery.native.choice import NUMPY, chosen_kernel

LARGEST_VALUE = (1 << 15) - 1
LARGEST_SUM = (1 << 24) - 1
"""The largest sum of a query's values without signs: 128 times that is still below 2^31."""
AT_ONCE = 1 << 20
"""Numbers that numpy converts, or dot products that it makes, at once: so few stay in a cache."""


class IntegerQueries(NamedTuple):
    """Query vectors as integers."""

    values: NDArray[np.int16]
    """(queries, dim)"""
    scales: NDArray[np.float32]
    """(queries,): what a value of 1 stands for, times whatever else scales the dot products."""


class Codes(NamedTuple):
    """Vectors in 8 bits."""

    values: NDArray[np.int8]
    """(vectors, dim)"""
    scales: NDArray[np.float32]
    """(vectors,): what a value of 1 stands for."""


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """The documents to score."""

    starts: NDArray[np.int64]
    """(documents,): the first vector of each."""
    counts: NDArray[np.int64]
    """(documents,): how many vectors each has; a document of none is left out."""
    positions: NDArray[np.int64]
    """(documents,): the column of its estimate."""

    def choose(self, rows: slice | NDArray[Any]) -> Documents:
        """Take some of the documents."""
        return Documents(self.starts[rows], self.counts[rows], self.positions[rows])

    def leave_out(self, excluded: NDArray[np.bool_]) -> Documents:
        """Count no vectors of some documents."""
        return replace(self, counts=np.where(excluded, 0, self.counts))


def estimate_scores(
    queries: IntegerQueries,
    codes: Codes,
    documents: Documents,
    estimates: NDArray[np.float32],
    *,
    softmax: bool,
) -> None:
    """Write the documents' scores for each query into `estimates` (queries, columns).

    Other columns stay as they are. An estimate that is not finite says that a number overflowed,
    and nothing else.
    """
    estimate_scores_by(chosen_kernel(), queries, codes, documents, estimates, softmax=softmax)


def estimate_scores_by(
    kernel: str,
    queries: IntegerQueries,
    codes: Codes,
    documents: Documents,
    estimates: NDArray[np.float32],
    *,
    softmax: bool,
) -> None:
    """Do the same with a kernel of this name; kernels differ in the last digits."""
    _check(queries, codes, documents, estimates)
    if not estimates.size:
        return
    if kernel == NUMPY:
        _estimate_in_numpy(queries, codes, documents, estimates, softmax=softmax)
        return
    from pseudoquery.native import kernels

    kernels.estimate(
        kernel,
        codes.values.shape[1],
        softmax,
        *queries,
        *codes,
        *(documents.starts, documents.counts, documents.positions),
        estimates,
    )


def score_in_single_precision(dots: NDArray[np.float32], *, softmax: bool) -> NDArray[np.float32]:
    """Score by dots (queries, k, documents), which are overwritten: (queries, documents).

    Sums over the middle are the fastest.
    """
    largest: NDArray[np.float32] = dots.max(axis=1)
    # What has overflowed must not look like a number that merely is not the largest.
    largest[~np.isfinite(dots).all(axis=1)] = np.nan
    if not softmax:
        return largest
    # Eq. 4-6, as the largest dot plus the weighted mean of what the others lack.
    dots -= largest[:, None]
    weights = np.exp(dots)
    dots *= weights
    largest += dots.sum(axis=1) / weights.sum(axis=1)
    return largest


def _estimate_in_numpy(
    queries: IntegerQueries,
    codes: Codes,
    documents: Documents,
    estimates: NDArray[np.float32],
    *,
    softmax: bool,
) -> None:
    """Multiply in single precision, whose error a search allows for."""
    _check_ranges(queries, len(codes.values), documents, estimates.shape[1])
    values = queries.values.astype(np.float32)
    for block in _alike(documents, AT_ONCE // max(values.shape)):
        vectors = block.starts + np.arange(block.counts[0])[:, None]
        rows = _as_slice(vectors.T.ravel())
        dots = values @ codes.values[rows].astype(np.float32).T
        dots *= queries.scales[:, None]
        dots *= codes.scales[rows]
        by_vector = dots.reshape(len(values), -1, len(vectors)).transpose(0, 2, 1)
        scores = score_in_single_precision(np.ascontiguousarray(by_vector), softmax=softmax)
        estimates[:, block.positions] = scores


def _alike(documents: Documents, vectors: int) -> Iterator[Documents]:
    """Divide documents into blocks of about so many vectors, with equal counts in each."""
    for count in np.unique(documents.counts[documents.counts > 0]).tolist():
        rows = np.flatnonzero(documents.counts == count)
        edges = [*range(0, len(rows), max(1, vectors // count)), len(rows)]
        for first, last in pairwise(edges):
            yield documents.choose(rows[first:last])


def _as_slice(rows: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return rows that follow each other as a slice, which needs no copy."""
    return slice(rows[0], rows[-1] + 1) if (np.diff(rows) == 1).all() else rows


def _check_ranges(
    queries: IntegerQueries, vectors: int, documents: Documents, columns: int
) -> None:
    """Refuse, as the compiled kernels do, what they could not do."""
    if (np.abs(queries.values.astype(np.int64)).sum(axis=1) > LARGEST_SUM).any():
        raise ValueError(f"the values of a query sum up to more than {LARGEST_SUM}.")
    outside = (documents.starts < 0) | (documents.starts > vectors) | (documents.counts < 0)
    outside |= documents.counts > vectors - documents.starts
    outside |= (documents.positions < 0) | (documents.positions >= columns)
    if outside.any():
        raise ValueError(
            f"document {np.flatnonzero(outside)[0]} is not within the {vectors} vectors and the "
            f"{columns} columns."
        )


def _check(
    queries: IntegerQueries, codes: Codes, documents: Documents, estimates: NDArray[np.float32]
) -> None:
    """Refuse what would make a kernel read or write outside of its buffers."""
    wanted: tuple[tuple[str, NDArray[Any], type, tuple[int, ...]], ...] = (
        ("queries", queries.values, np.int16, (len(queries.scales), codes.values.shape[-1])),
        ("query scales", queries.scales, np.float32, (len(queries.values),)),
        ("codes", codes.values, np.int8, (len(codes.scales), queries.values.shape[-1])),
        ("code scales", codes.scales, np.float32, (len(codes.values),)),
        ("starts", documents.starts, np.int64, (len(documents.starts),)),
        ("counts", documents.counts, np.int64, (len(documents.starts),)),
        ("positions", documents.positions, np.int64, (len(documents.starts),)),
        ("estimates", estimates, np.float32, (len(queries.values), estimates.shape[-1])),
    )
    for name, array, dtype, shape in wanted:
        if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
            raise ValueError(
                f"{name} must be a contiguous array of {dtype.__name__} of the shape {shape}, "
                f"not of {array.dtype} of the shape {array.shape}."
            )
