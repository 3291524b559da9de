"""Every vector compared in 8 bits: the first step that proves an answer by itself.

The codes of a segment are derived data. They lie beside the index and are mapped rather than read.
A segment never changes: a change to the index costs the codes of what is new, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Score
from pseudoquery.native.scan import Codes, Documents, IntegerQueries, estimate_scores
from pseudoquery.search.scan_threads import run_in_threads, thread_count
from pseudoquery.storage.int8_codes import (
    ENDING,
    Int8Codes,
    codes_path,
    map_codes,
    quantise,
    round_queries,
    save_codes,
)
from pseudoquery.storage.segments import Segment
from pseudoquery.storage.vector_view import VectorView

HELD = 1 << 24
"""Dot products held at once while the best vectors are sought."""
SHARE = 1 << 21
"""Bytes of codes that are worth a thread's while."""
SHARES = 4
"""Shares of a thread, so that one that is held up leaves some to the others."""


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
    documents: Documents
    """Those that have vectors, with their positions in the view."""


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
        self,
        queries: NDArray[np.float32],
        scale: float,
        score: Score,
        allowed: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float32]:
        """Estimate every allowed document's score for each query vector, (queries, documents).

        What is not allowed, or has no vectors, has minus infinity. An estimate of something that
        overflows is not finite.
        """
        estimates = np.full((len(queries), len(self.errors)), -np.inf, dtype=np.float32)
        chosen = [part.documents for part in self.parts]
        if allowed is not None and not allowed.all():
            chosen = [some.leave_out(~allowed[some.positions]) for some in chosen]
        self._estimate(queries, scale, chosen, estimates, softmax=score == "softmax")
        return estimates

    def search(
        self, queries: NDArray[np.float32], count: int, allowed: NDArray[np.bool_] | None
    ) -> NearestVectors:
        """Find the `count` largest dot products, among allowed positions, for each query."""
        dots = np.full((len(queries), count), -np.inf, dtype=np.float32)
        positions = np.full((len(queries), count), -1, dtype=np.int64)
        eligible = np.arange(self.total) if allowed is None else np.flatnonzero(allowed)
        vectors = self._vectors(eligible)
        at_once = max(1, HELD // max(self.total, 1))
        for start in range(0, len(queries), at_once):
            block = queries[start : start + at_once]
            all_dots = np.empty((len(block), len(eligible)), dtype=np.float32)
            self._estimate(block, 1.0, vectors, all_dots, softmax=False)
            for row, eligible_dots in enumerate(all_dots, start=start):
                best = np.lexsort((eligible, -eligible_dots))[:count]
                dots[row, : len(best)] = eligible_dots[best]
                positions[row, : len(best)] = eligible[best]
        return NearestVectors(dots, positions)

    def _vectors(self, eligible: NDArray[np.int64]) -> list[Documents]:
        """Make a document of each eligible vector, for each part."""
        sizes = [len(part.codes.values) for part in self.parts]
        edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        cuts = np.searchsorted(eligible, edges)
        return [
            Documents(
                eligible[first:last] - edge, np.ones(last - first, np.int64), np.arange(first, last)
            )
            for first, last, edge in zip(cuts[:-1], cuts[1:], edges[:-1], strict=True)
        ]

    def _estimate(
        self,
        queries: NDArray[np.float32],
        scale: float,
        documents: list[Documents],
        estimates: NDArray[np.float32],
        *,
        softmax: bool,
    ) -> None:
        """Score documents of each part, a share of them in each thread."""
        values, scales, _ = round_queries(queries)
        integers = IntegerQueries(values, scales * np.float32(scale))

        def estimate_share(share: tuple[Int8Codes, Documents]) -> None:
            codes, some = share
            estimate_scores(
                integers, Codes(codes.values, codes.scales), some, estimates, softmax=softmax
            )

        shares = [
            (part.codes, share)
            for part, chosen in zip(self.parts, documents, strict=True)
            for share in _share_out(chosen, values.shape[1])
        ]
        run_in_threads(estimate_share, shares)


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
        counts = segment.counts[filled].astype(np.int64)
        documents = Documents(np.cumsum(counts) - counts, counts, document + filled)
        parts.append(Part(segment, codes, documents))
        document += len(segment.counts)
    errors = np.zeros(document, dtype=np.float32)
    for part in parts:
        if len(part.documents.starts):
            errors[part.documents.positions] = np.maximum.reduceat(
                part.codes.errors, part.documents.starts
            )
    return Int8Scan(tuple(parts), view.vector_count, errors)


def remove_stale(folder: Path, view: VectorView) -> None:
    """Remove the codes of segments that are no more."""
    needed = {codes_path(folder, segment) for segment in view.segments}
    for path in folder.glob(f"*{ENDING}"):
        if path not in needed:
            path.unlink(missing_ok=True)


def _codes_of(segment: Segment, folder: Path | None) -> Int8Codes:
    if segment.scales is not None:  # it is kept in 8 bits, and nothing else is to be known
        segment.check()
        return Int8Codes(segment.vectors, segment.scales, np.zeros_like(segment.scales))
    if folder is None or not segment.name:
        segment.check()
        return quantise(segment.vectors)
    path = codes_path(folder, segment)
    codes = map_codes(path, segment.vectors.shape)
    if codes is None:
        segment.check()
        codes = quantise(segment.vectors)
        try:
            save_codes(path, codes)
        except OSError:
            # A reader without write permission, or a full disk, can still search.
            return codes
        # What is mapped need not be held.
        codes = map_codes(path, segment.vectors.shape) or codes
    return codes


def _share_out(documents: Documents, dimension: int) -> list[Documents]:
    """Divide documents into shares for threads, of about equally many vectors."""
    threads, total = thread_count(), len(documents.starts)
    if threads < 2 or not total:
        return [documents]
    size = int(documents.counts.sum()) * dimension
    shares = max(1, min(SHARES * threads, size // SHARE, total))
    edges = [total * share // shares for share in range(shares + 1)]
    return [documents.choose(slice(*pair)) for pair in pairwise(edges)]
