"""Two-step search with the first step in Milvus: the engine recalls, the library scores and proves.

The engine returns single vectors, so what it finds is merged to distinct documents, and more is
asked for until there are enough of these. Then all vectors of the candidates are fetched, and
scored in double precision by the same function as in an index folder. So the scores are equal, and
so is the proof, as far as the engine compares with every vector (FLAT): an approximate structure
may have missed any document, and its answers are proven only when all documents were scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.milvus.collection import LARGEST_SEARCH, Collection, NearestRows
from pseudoquery.milvus.filters import narrowing, satisfying
from pseudoquery.milvus.rows import StoredDocument
from pseudoquery.search.exact_scores import exact_scores, rounding
from pseudoquery.search.rank import RankedOrdinals
from pseudoquery.search.two_step import Queries, RecallDepth
from pseudoquery.storage.filters import Where
from pseudoquery.storage.segments import Segment
from pseudoquery.storage.snapshot import Stored
from pseudoquery.storage.vector_view import VectorView, make_view

VECTORS_PER_DOCUMENT = 3
"""How many vectors are asked for at first; most often they are of enough documents."""


@dataclass(frozen=True, slots=True)
class ScoredDocument:
    """A document and its exact score."""

    score: float
    kept: StoredDocument

    @property
    def order(self) -> tuple[float, int, str]:
        """Best first; ties go to the document that was added first."""
        return -self.score, *self.kept.order


@dataclass(frozen=True, slots=True)
class BestDocuments:
    """The best documents for one query."""

    scored: list[ScoredDocument]
    certified: bool
    candidates: int


class RecalledDocuments:
    """The documents of some answers, in place of the snapshot that an index folder would give."""

    def __init__(self, bests: Sequence[BestDocuments], dimension: int) -> None:
        found = {one.kept.order: one.kept for best in bests for one in best.scored}
        self._kept = [found[order] for order in sorted(found)]
        self._numbers = {kept.order: number for number, kept in enumerate(self._kept)}
        self.view = view_of(self._kept, dimension)

    def by_ordinal(self, ordinal: int) -> Stored:
        """Return the document of this number."""
        return self._kept[ordinal].stored

    def ids(self) -> dict[int, str]:
        """Map every document's number to its id."""
        return {number: kept.stored.document.id for number, kept in enumerate(self._kept)}

    def ranked(self, best: BestDocuments) -> RankedOrdinals:
        """Name the documents of an answer by their numbers."""
        return RankedOrdinals(
            tuple(self._numbers[one.kept.order] for one in best.scored),
            tuple(one.score for one in best.scored),
            best.certified,
            best.candidates,
        )


@dataclass(frozen=True, slots=True)
class MilvusSearch:
    """What is asked of a collection, and how."""

    collection: Collection
    representation: Representation
    top: int
    depth: RecallDepth
    where: Where | None
    exact: bool

    def best(self, queries: Queries) -> list[BestDocuments]:
        """Rank documents for each query."""
        bests = self._recall(queries)
        doubtful = [row for row, best in enumerate(bests) if self.exact and not best.certified]
        proven = self._compared_with_all([queries[row] for row in doubtful])
        for row, best in zip(doubtful, proven, strict=True):
            bests[row] = best
        return bests

    def _recall(self, queries: Queries) -> list[BestDocuments]:
        expression = narrowing(self.where)
        wanted = max(self.depth.documents, self.top)
        number = min(self.depth.vectors or VECTORS_PER_DOCUMENT * wanted, LARGEST_SEARCH)
        known: dict[str, StoredDocument | None] = {}
        bests: dict[int, BestDocuments] = {}
        pending = list(range(len(queries)))
        while pending:
            found = self._first_step([queries[row] for row in pending], number, expression)
            with ThreadPoolExecutor(1) as beside:  # the engine lets every request wait a while
                norm = beside.submit(self.collection.norm)  # of all that it can have seen
                self._read({id_ for parts in found for part in parts for id_ in part.ids}, known)
            # To prove an answer, go on where that can help.
            goes_on = number < LARGEST_SEARCH and (
                self.depth.vectors is None or (self.exact and self.collection.exhaustive)
            )
            unfinished = []
            for row, parts in zip(pending, found, strict=True):
                ids = {id_ for part in parts for id_ in part.ids}
                kept = [one for id_ in ids if (one := known[id_])]
                everything = self._is_everything(parts, number, expression)
                best = self._proven(queries[row], kept, parts, everything, norm.result())
                bests[row] = best
                enough = len(kept) >= wanted and not (
                    self.exact and self.collection.exhaustive and not best.certified
                )
                if goes_on and not everything and not enough:
                    unfinished.append(row)
            pending, number = unfinished, min(2 * number, LARGEST_SEARCH)
        return [bests[row] for row in range(len(queries))]

    def _first_step(
        self, queries: Queries, number: int, expression: str
    ) -> list[list[NearestRows]]:
        """Ask the engine for all vectors of all queries at once."""
        found = iter(self.collection.search(np.concatenate(list(queries)), number, expression))
        return [[next(found) for _ in query] for query in queries]

    def _read(self, ids: set[str], known: dict[str, StoredDocument | None]) -> None:
        """Fetch documents that are not known yet; None where one is gone or fails the filter."""
        new = sorted(ids - known.keys())
        read = self.collection.read(new)
        allowed = satisfying(self.where, [kept.stored.document for kept in read.values()])
        # What was found may be a version that has since been replaced by one without vectors.
        usable = {id_ for id_ in allowed if len(read[id_].vectors)}
        known |= {id_: read[id_] if id_ in usable else None for id_ in new}

    def _is_everything(self, parts: Sequence[NearestRows], number: int, expression: str) -> bool:
        """Say whether the engine has returned all the vectors there are."""
        returned = max(len(part.ids) for part in parts)
        if returned == number:
            return False
        return self.collection.exhaustive or returned == self.collection.count_vectors(expression)

    def _proven(
        self,
        query: NDArray[np.float32],
        kept: list[StoredDocument],
        parts: Sequence[NearestRows],
        everything: bool,
        norm: float,
    ) -> BestDocuments:
        """Score candidates; they are proven if no document left out can reach the last of them."""
        scored = self._scored(query, kept)
        certified = everything
        if self.collection.exhaustive and not everything and len(scored) == self.top:
            bounded = view_of([], query.shape[1], norm)
            room = len(query) * rounding(bounded, query, self.representation)
            ceiling = self.representation.scale * sum(part.dots[-1] for part in parts) + room
            certified = scored[-1].score > ceiling
        return BestDocuments(scored, certified, len(kept))

    def _scored(
        self, query: NDArray[np.float32], kept: list[StoredDocument]
    ) -> list[ScoredDocument]:
        """Score documents exactly; return the best."""
        view = view_of(kept, query.shape[1])
        scores = exact_scores(view, query, np.arange(len(kept)), self.representation)
        scored = [ScoredDocument(*one) for one in zip(scores.tolist(), kept, strict=True)]
        return sorted(scored, key=lambda one: one.order)[: self.top]

    def _compared_with_all(self, queries: Queries) -> list[BestDocuments]:
        """Fetch and score all documents, some at a time."""
        scored: list[list[ScoredDocument]] = [[] for _ in queries]
        count = 0
        for block in self.collection.blocks(self.where) if queries else ():
            kept = [one for one in block if len(one.vectors)]
            count += len(kept)
            for row, query in enumerate(queries):
                both = scored[row] + self._scored(query, kept)
                scored[row] = sorted(both, key=lambda one: one.order)[: self.top]
        return [BestDocuments(own, certified=True, candidates=count) for own in scored]


def view_of(kept: Sequence[StoredDocument], dimension: int, norm: float = 0.0) -> VectorView:
    """Lay documents side by side, as the scoring functions read them."""
    nothing = np.zeros((0, dimension), dtype=np.float32)
    segment = Segment(
        np.concatenate([nothing, *(one.vectors for one in kept)]),
        np.arange(len(kept), dtype=np.int64),
        np.array([len(one.vectors) for one in kept], dtype=np.int64),
    )
    return make_view(0, 0, (segment,), np.zeros(0, dtype=np.int64), norm)
