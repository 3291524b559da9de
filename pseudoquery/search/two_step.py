"""Two-step search: candidates by the largest dot product, exact scores, and a proof.

The score y of a document never exceeds its largest dot product m (Eq. 4-6: y is a weighted mean of
the dots). So when the first step is exhaustive and the n-th best exact score is at least the
largest dot that any document left out can have, the n best are proven to be the exact ones. When
they are not, `exact` asks for one pass over all vectors: it scores every document whose largest dot
reaches the n-th best score found so far, which is always enough.

A scan in 8 bits needs no second pass. It knows every dot but for a small error e, so a document's
score lies within `sensitivity` times e of an estimate, and only documents whose estimates are that
close to the n-th best have to be scored: always proven, and few. So does a scan on a GPU, whose
estimates lack nothing but digits.

Exact scores are computed in double precision, row by row, so that a document's score does not
depend on the other candidates; ties go to the document that was added first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import sensitivity
from pseudoquery.search.exact_scores import exact_scores, rounding, vector_counts
from pseudoquery.search.faiss_index import FaissIndex
from pseudoquery.search.gpu_scan import GpuScan
from pseudoquery.search.int8_scan import Int8Scan, NearestVectors
from pseudoquery.storage.int8_codes import split_query
from pseudoquery.storage.vector_view import Selection, VectorView

Queries = Sequence[NDArray[np.float32]]
"""One array (query vectors, dim) for each query."""
BLOCK_VECTORS = 16_384
"""Vectors scanned or scored exactly at once."""
BLOCK_ESTIMATES = 1 << 24
"""Estimates of a scan held at once, one for each query vector and document."""
GPU_QUERIES = 256
"""Queries asked of a GPU at once."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best documents for one query, as indices into the view's documents."""

    documents: NDArray[np.int64]
    scores: NDArray[np.float64]
    certified: bool
    candidates: int


@dataclass(frozen=True, slots=True)
class RecallDepth:
    """How far the first step goes before documents are scored exactly."""

    documents: int = 200
    """R of the paper's Section 3.3: how many documents are recalled, at least."""
    vectors: int | None = None
    """Recall by a number of vectors instead, as the authors' program does; the paper's 1000*k."""


def search(
    view: VectorView,
    step: FaissIndex | Int8Scan | GpuScan,
    queries: Queries,
    settings: Representation,
    top: int,
    *,
    depth: RecallDepth | None = None,
    allowed: NDArray[np.bool_] | None = None,
    exact: bool = False,
) -> list[Ranking]:
    """Rank the allowed documents (a mask over the view's; by default the live ones) by score."""
    allowed = view.live if allowed is None else allowed & view.live
    depth = depth or RecallDepth()
    if isinstance(step, GpuScan):
        return _proven_on_gpu(view, step, queries, settings, top, allowed)
    if isinstance(step, Int8Scan) and depth.vectors is None:
        return _proven(view, step, queries, settings, top, allowed)
    chosen = view.alive if allowed is view.live else view.chosen(allowed)
    rankings = _two_steps(view, step, queries, settings, top, depth, chosen)
    if exact:
        doubtful = [row for row, ranking in enumerate(rankings) if not ranking.certified]
        proven = _compared_with_all(
            view,
            [queries[row] for row in doubtful],
            settings,
            top,
            allowed,
            [_threshold(rankings[row], top) for row in doubtful],
        )
        for row, ranking in zip(doubtful, proven, strict=True):
            rankings[row] = ranking
    return rankings


def _proven(
    view: VectorView,
    scan: Int8Scan,
    queries: Queries,
    settings: Representation,
    top: int,
    allowed: NDArray[np.bool_],
) -> list[Ranking]:
    """Score every document that can be among the best, given what a scan knows of them all."""
    allowed = allowed & (np.diff(view.offsets) > 0)
    rankings = []
    for own in _query_blocks(queries, len(allowed)):
        bounds = np.cumsum([len(query) for query in own])[:-1]
        estimates = scan.estimates(np.concatenate(own), settings.scale, settings.score)
        for query, parts in zip(own, np.split(estimates, bounds), strict=True):
            contenders = _contenders(view, scan, query, settings, top, parts.sum(axis=0), allowed)
            ranked = _rank(view, query, contenders, settings, top)
            rankings.append(Ranking(*ranked, certified=True, candidates=len(contenders)))
    return rankings


def _proven_on_gpu(
    view: VectorView,
    scan: GpuScan,
    queries: Queries,
    settings: Representation,
    top: int,
    allowed: NDArray[np.bool_],
) -> list[Ranking]:
    """Do the same with the best of a GPU's estimates; if they all are close, ask for more."""
    allowed = allowed if scan.filled is None else allowed & scan.filled
    available = int(allowed.sum())
    bits = None if available == len(allowed) else allowed
    rankings: dict[int, Ranking] = {}
    for start in range(0, len(queries), GPU_QUERIES):
        pending = list(range(start, min(start + GPU_QUERIES, len(queries))))
        number = min(available, 2 * top + 64)
        while pending:
            asked = np.concatenate([queries[row] for row in pending])
            documents, estimates = scan.best(asked, settings, number, bits)
            short = []
            for row, own, scores in zip(pending, documents, estimates, strict=True):
                if not np.isfinite(scores).all():
                    # A sum that overflows says nothing: in double precision, none does.
                    unknown = [queries[row]], settings, top, allowed, [-np.inf]
                    rankings[row] = _compared_with_all(view, *unknown)[0]
                    continue
                room = _room_on_gpu(view, scan, queries[row], settings)
                bar = scores[top - 1] - 2 * room if number > top else -np.inf
                if number < available and scores[-1] >= bar:
                    short.append(row)
                    continue
                contenders = np.sort(own[scores >= bar])
                ranked = _rank(view, queries[row], contenders, settings, top)
                rankings[row] = Ranking(*ranked, certified=True, candidates=len(contenders))
            pending, number = short, min(available, 4 * number)
    return [rankings[row] for row in range(len(queries))]


def _room_on_gpu(
    view: VectorView, scan: GpuScan, query: NDArray[np.float32], settings: Representation
) -> float:
    """Bound how far a GPU's estimate of a score can be off."""
    length = float(np.linalg.norm(query.astype(np.float64)))
    # A query counts with 22 bits of each number, or of the largest; or to a tiny step.
    largest = float(np.abs(query).max(initial=0.0))
    units = 2.0**-21 + (2 * scan.widest + 16) * float(np.finfo(np.float32).eps)
    lost = units * length + query.shape[1] * (2.0**-22 * largest + 2.0**-36)
    k = max(scan.widest, 1) if settings.score == "softmax" else 1
    return float(
        sensitivity(k) * (rounding(view, query, settings) + settings.scale * lost * view.norm)
    )


def _query_blocks(queries: Queries, documents: int) -> list[list[NDArray[np.float32]]]:
    """Group queries so that the estimates of a group can be held."""
    at_once = max(1, BLOCK_ESTIMATES // max(documents, 1))
    block = np.cumsum([len(query) for query in queries]) // at_once
    groups = np.split(np.arange(len(queries)), np.flatnonzero(np.diff(block)) + 1)
    return [[queries[row] for row in group] for group in groups if len(group)]


def _contenders(
    view: VectorView,
    scan: Int8Scan,
    query: NDArray[np.float32],
    settings: Representation,
    top: int,
    estimates: NDArray[np.float32],
    allowed: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """List the allowed documents whose score may reach the n-th best, given estimates of all."""
    documents = np.flatnonzero(allowed)
    if len(documents) <= top:
        return documents
    k = view.widest if settings.score == "softmax" else 1
    own = estimates[documents]
    room = sensitivity(k) * _room(view, scan, query, scan.errors[documents], settings)
    # A sum that overflows says nothing, so it must neither raise the bar nor rule out anything.
    unknown = ~np.isfinite(own)
    lowest, highest = own - room, own + room
    lowest[unknown], highest[unknown] = -np.inf, np.inf
    contenders: NDArray[np.int64] = documents[highest >= np.partition(lowest, -top)[-top]]
    return contenders


def _room(
    view: VectorView,
    step: FaissIndex | Int8Scan,
    query: NDArray[np.float32],
    errors: Any,
    settings: Representation,
) -> Any:
    """Bound how far a dot, summed over a query's vectors, can be from what was compared.

    `errors` are distances between vectors and what the first step has instead of them.
    """
    lengths = float(np.linalg.norm(query.astype(np.float64), axis=1).sum())
    room = settings.scale * lengths * errors + len(query) * rounding(view, query, settings)
    if not isinstance(step, Int8Scan):
        return room
    lost = float(split_query(query).lost.sum())
    # Sums over a document's vectors and the joining of a query's halves, in single precision.
    units = (2 * view.widest + 16) * float(np.finfo(np.float32).eps)
    return room + settings.scale * (lost + units * lengths) * (view.norm + errors)


def _two_steps(
    view: VectorView,
    step: FaissIndex | Int8Scan,
    queries: Queries,
    settings: Representation,
    top: int,
    depth: RecallDepth,
    chosen: Selection,
) -> list[Ranking]:
    wanted = 0 if depth.vectors else min(max(depth.documents, top), chosen.documents)
    # Clusters of a text are alike, and a query may find several of each: it asks for more at once.
    # The second half of what it finds is only used where it is needed: exact scores take time.
    likely = min(depth.vectors or 2 * wanted, chosen.vectors)
    asked = min(2 * likely, chosen.vectors)
    rankings: dict[int, Ranking] = {}
    pending = list(range(len(queries)))
    while pending:
        found = _first_step(step, [queries[row] for row in pending], asked, chosen.positions)
        short = []
        for row, (dots, positions) in zip(pending, found, strict=True):
            for used in (likely, asked):
                recalled = _documents_at(view, positions[:, :used])
                if len(recalled) >= wanted:
                    break
            if len(recalled) < wanted and asked < chosen.vectors:
                # The vectors were of too few documents: ask for more of them.
                short.append(row)
                continue
            documents, scores = _rank(view, queries[row], recalled, settings, top)
            floors = dots[:, used - 1 : used]
            certified = len(recalled) == chosen.documents or (
                step.exhaustive
                and len(scores) == top
                and float(scores[-1]) > _ceiling(view, step, queries[row], floors, settings)
            )
            rankings[row] = Ranking(documents, scores, certified, len(recalled))
        pending, likely, asked = short, asked, min(chosen.vectors, 2 * asked)
    return [rankings[row] for row in range(len(queries))]


def _first_step(
    step: FaissIndex | Int8Scan, queries: Queries, number: int, bits: NDArray[np.bool_] | None
) -> list[NearestVectors]:
    """Run the first step for all vectors of all queries at once."""
    if not number:
        return [
            NearestVectors(query[:, :0], np.zeros((len(query), 0), np.int64)) for query in queries
        ]
    dots, positions = step.search(np.concatenate(list(queries)), number, bits)
    bounds = accumulate((len(query) for query in queries), initial=0)
    return [
        NearestVectors(dots[start:stop], positions[start:stop]) for start, stop in pairwise(bounds)
    ]


def _documents_at(view: VectorView, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """List the documents that own the vectors at these positions, each once, ascending."""
    found = positions[positions >= 0]
    return np.unique(np.searchsorted(view.offsets, found, side="right") - 1)


def _ceiling(
    view: VectorView,
    step: FaissIndex | Int8Scan,
    query: NDArray[np.float32],
    floors: NDArray[np.float32],
    settings: Representation,
) -> float:
    """Bound the score of any document that the first step left out."""
    largest = settings.scale * float(floors.sum(dtype=np.float64))
    return largest + float(_room(view, step, query, step.error, settings))


def _rank(
    view: VectorView,
    query: NDArray[np.float32],
    documents: NDArray[np.int64],
    settings: Representation,
    top: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Score documents exactly; return the best and their scores, ties in order of number."""
    parts = [exact_scores(view, query, block, settings) for block in _blocks(view, documents)]
    scores = np.concatenate([np.zeros(0), *parts])
    order = np.lexsort((documents, -scores))[:top]
    return documents[order], scores[order]


def _threshold(ranking: Ranking, top: int) -> float:
    """Return a score that the n-th best document surely reaches."""
    return float(ranking.scores[-1]) if len(ranking.scores) == top else -np.inf


def _compared_with_all(
    view: VectorView,
    queries: Queries,
    settings: Representation,
    top: int,
    allowed: NDArray[np.bool_],
    thresholds: Sequence[float],
) -> list[Ranking]:
    """Compare with every vector once; score each document whose bound reaches the threshold."""
    if not queries:
        return []
    flat = np.concatenate(list(queries))
    bounds = np.cumsum([0] + [len(query) for query in queries])
    slack = [len(query) * rounding(view, query, settings) for query in queries]
    reached: list[list[NDArray[np.int64]]] = [[] for _ in queries]
    for documents in _blocks(view, np.flatnonzero(allowed & (np.diff(view.offsets) > 0))):
        vectors = view.vectors_of(documents)
        starts = np.concatenate([[0], np.cumsum(vector_counts(view, documents))[:-1]])
        largest = settings.scale * np.maximum.reduceat(vectors @ flat.T, starts, axis=0)
        for row in range(len(queries)):
            ceilings = largest[:, bounds[row] : bounds[row + 1]].sum(axis=1, dtype=np.float64)
            reached[row].append(documents[ceilings + slack[row] >= thresholds[row]])
    nothing = np.zeros(0, dtype=np.int64)
    rankings = []
    for row, query in enumerate(queries):
        candidates = np.concatenate([nothing, *reached[row]])
        ranked = _rank(view, query, candidates, settings, top)
        rankings.append(Ranking(*ranked, certified=True, candidates=len(candidates)))
    return rankings


def _blocks(view: VectorView, documents: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Group documents, in order, into blocks of about BLOCK_VECTORS vectors."""
    if not len(documents):
        return []
    block = np.cumsum(vector_counts(view, documents)) // BLOCK_VECTORS
    if not block[-1]:
        return [documents]
    return np.split(documents, np.flatnonzero(np.diff(block)) + 1)
