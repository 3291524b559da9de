"""Every vector compared in 8 bits: the first step that proves an answer by itself.

The codes of a segment are derived data. They lie beside the index and are mapped rather than read.
A segment never changes: a change to the index costs the codes of what is new, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pseudoquery.method.representation import Score
from pseudoquery.search.int8_products import FEW, Packed, multiplies_integers, multiply, pack, packs
from pseudoquery.storage.int8_codes import (
    ENDING,
    Int8Codes,
    SplitQuery,
    codes_path,
    map_codes,
    quantise,
    save_codes,
    split_query,
)
from pseudoquery.storage.segments import Segment
from pseudoquery.storage.vector_view import VectorView

PRODUCTS = 1 << 20
"""Dot products made at once: few enough for a cache, many enough to keep all cores busy."""
HELD = 1 << 24
"""Dot products held at once while the best vectors are sought."""
PACKED = 1 << 28
"""Bytes of codes up to which they are held in memory as well, laid out to be faster."""


class NearestVectors(NamedTuple):
    """The outcome of a first step for a batch of query vectors."""

    dots: NDArray[np.float32]
    """(queries, count): falling along each row; minus infinity where nothing more was found"""
    positions: NDArray[np.int64]
    """(queries, count): -1 where nothing more was found"""


class Part(NamedTuple):
    """A segment in 8 bits, and where its documents are."""

    segment: Segment
    codes: Int8Codes
    documents: NDArray[np.int64]
    """Those that have vectors, by their positions in the view."""
    starts: NDArray[np.int64]
    """Where the vectors of each of these begin."""
    packed: Packed | None = None


@dataclass(frozen=True, slots=True)
class Int8Scan:
    """All vectors of a view in 8 bits."""

    parts: tuple[Part, ...]
    total: int
    """How many vectors there are."""
    errors: NDArray[np.float32]
    """(documents,): the largest distance between a vector of each and its code."""

    @property
    def exhaustive(self) -> bool:
        """It compares with every vector, so that what it leaves out is surely smaller."""
        return True

    @property
    def error(self) -> float:
        """The largest distance between any vector and its code."""
        return float(self.errors.max(initial=0.0))

    def covers(self, view: VectorView) -> bool:
        """Say whether these are the codes of this view's vectors."""
        return len(self.parts) == len(view.segments) and all(
            part.segment is segment for part, segment in zip(self.parts, view.segments, strict=True)
        )

    def estimates(
        self, queries: NDArray[np.float32], scale: float, score: Score
    ) -> NDArray[np.float32]:
        """Estimate every document's score for each query vector, (queries, documents).

        A document without vectors has minus infinity.
        """
        halves = split_query(queries)
        estimates = np.full((len(queries), len(self.errors)), -np.inf, dtype=np.float32)
        for part in self.parts:
            count = len(part.codes.values)
            whole = part.packed and len(halves.values) <= FEW
            at_once = max(1, count if whole else PRODUCTS // len(halves.values))
            edges = np.append(part.starts, count)
            # Blocks of whole documents, each about as large as it may be.
            cuts = np.searchsorted(part.starts, np.arange(0, count, at_once))
            for first, last in pairwise(np.unique(np.append(cuts, len(part.starts))).tolist()):
                dots = _products(halves, part, slice(edges[first], edges[last]))
                dots *= np.float32(scale)
                inner_edges = edges[first : last + 1] - edges[first]
                estimates[:, part.documents[first:last]] = _estimate_scores(
                    dots, inner_edges, score
                )
        return estimates

    def search(
        self, queries: NDArray[np.float32], count: int, allowed: NDArray[np.bool_] | None
    ) -> NearestVectors:
        """Find the `count` largest dot products, among allowed positions, for each query."""
        dots = np.full((len(queries), count), -np.inf, dtype=np.float32)
        positions = np.full((len(queries), count), -1, dtype=np.int64)
        at_once = max(1, HELD // max(self.total, 1))
        eligible = np.arange(self.total) if allowed is None else np.flatnonzero(allowed)
        for start in range(0, len(queries), at_once):
            halves = split_query(queries[start : start + at_once])
            blocks = [_products(halves, part, slice(None)) for part in self.parts]
            for row, all_dots in enumerate(np.concatenate(blocks, axis=1), start=start):
                eligible_dots = all_dots[eligible]
                best = np.lexsort((eligible, -eligible_dots))[:count]
                dots[row, : len(best)] = eligible_dots[best]
                positions[row, : len(best)] = eligible[best]
        return NearestVectors(dots, positions)


def make_scan(
    view: VectorView, folder: Path | None = None, known: Int8Scan | None = None
) -> Int8Scan:
    """Put the codes of all segments together: from an earlier scan, from disk, or made now."""
    at_hand = {id(part.segment): part for part in known.parts} if known else {}
    parts = []
    document = 0
    for segment in view.segments:
        same = at_hand.get(id(segment))
        codes = same.codes if same else _codes_of(segment, folder)
        filled = np.flatnonzero(segment.counts)
        starts = np.concatenate([[0], np.cumsum(segment.counts[filled])[:-1]]).astype(np.int64)
        packed = same.packed if same else None
        parts.append(Part(segment, codes, document + filled, starts[: len(filled)], packed))
        document += len(segment.counts)
    errors = np.zeros(document, dtype=np.float32)
    for part in parts:
        if len(part.documents):
            errors[part.documents] = np.maximum.reduceat(part.codes.errors, part.starts)
    return Int8Scan(tuple(parts), view.vector_count, errors)


def pack_scan(scan: Int8Scan) -> Int8Scan:
    """Lay out the codes of what is asked often, unless they are many: they are held in memory."""
    bare = [part for part in scan.parts if part.packed is None and part.codes.values.size]
    size = sum(part.codes.values.size for part in scan.parts)
    if not bare or size > PACKED or not packs(bare[0].codes.values.shape[1]):
        return scan
    laid = {id(part): pack(part.codes.values) for part in bare}
    parts = (part._replace(packed=laid.get(id(part), part.packed)) for part in scan.parts)
    return replace(scan, parts=tuple(parts))


def remove_stale(folder: Path, view: VectorView) -> None:
    """Remove the codes of segments that are no more."""
    needed = {codes_path(folder, segment) for segment in view.segments}
    for path in folder.glob(f"*{ENDING}"):
        if path not in needed:
            path.unlink(missing_ok=True)


def _codes_of(segment: Segment, folder: Path | None) -> Int8Codes:
    if segment.scales is not None:  # it is kept in 8 bits, and nothing else is to be known
        return Int8Codes(segment.vectors, segment.scales, np.zeros_like(segment.scales))
    if folder is None or not segment.name:
        return quantise(segment.vectors)
    path = codes_path(folder, segment)
    codes = map_codes(path, segment.vectors.shape)
    if codes is None:
        codes = quantise(segment.vectors)
        try:
            save_codes(path, codes)
        except OSError:
            # A reader without write permission, or a full disk, can still search.
            return codes
        # What is mapped need not be held.
        codes = map_codes(path, segment.vectors.shape) or codes
    return codes


def _estimate_scores(
    dots: NDArray[np.float32], edges: NDArray[Any], score: Score
) -> NDArray[np.float32]:
    """Score documents whose dots (queries, vectors) lie between edges: (queries, documents)."""
    starts, counts = edges[:-1], np.diff(edges)
    if len(counts) and (counts == counts[0]).all():
        even = dots.reshape(len(dots), len(counts), counts[0]).transpose(0, 2, 1)
        return score_in_single_precision(np.ascontiguousarray(even), score)
    if score == "max":
        return np.maximum.reduceat(dots, starts, axis=1)
    scores = np.empty((len(dots), len(counts)), dtype=np.float32)
    for count in np.unique(counts).tolist():
        alike = np.flatnonzero(counts == count)
        columns = starts[alike] + np.arange(count)[:, None]
        scores[:, alike] = score_in_single_precision(dots.take(columns, axis=1), score)
    return scores


def score_in_single_precision(dots: NDArray[np.float32], score: Score) -> NDArray[np.float32]:
    """Score by dots (queries, k, documents), which are overwritten: (queries, documents).

    Sums over the middle are the fastest. Documents are ranked by `exact_scores`, not by these.
    """
    largest: NDArray[np.float32] = dots.max(axis=1)
    if score == "max":
        return largest
    # Eq. 4-6, as the largest dot plus the weighted mean of what the others lack.
    dots -= largest[:, None]
    weights = np.exp(dots)
    dots *= weights
    largest += dots.sum(axis=1) / weights.sum(axis=1)
    return largest


def _products(halves: SplitQuery, part: Part, rows: slice) -> NDArray[np.float32]:
    """Multiply queries with some of the vectors, (queries, rows)."""
    values = part.codes.values[rows]
    if part.packed and len(halves.values) <= FEW and len(values) == len(part.codes.values):
        dots = part.packed.products(halves.values)
    else:
        dots = _integer_products(halves.values, values).astype(np.float32)
    dots *= halves.scales
    total = dots[: len(halves.lost)]
    total += dots[len(halves.lost) :]
    total *= part.codes.scales[rows]
    return total


def _integer_products(left: NDArray[np.int8], right: NDArray[np.int8]) -> NDArray[Any]:
    """Multiply (queries, dim) with (vectors, dim), exactly where the processor can."""
    if multiplies_integers(left.shape[1]):
        return multiply(left, right)
    # Single precision holds these sums exactly up to some thousand dimensions; search allows for
    # the rounding beyond.
    real: NDArray[Any] = (
        torch.from_numpy(left).float() @ torch.from_numpy(right).float().T
    ).numpy()
    return real
