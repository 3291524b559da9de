"""Two-step search with the first step in Milvus: the engine recalls, the library scores and proves.

The engine returns single vectors, so what it finds is merged to distinct documents, and more is
asked for until there are enough of these. Then all vectors of the candidates are fetched, and
scored in double precision by the same function as in an index folder. So the scores are equal, and
so is the proof, as far as the engine compares with every vector (FLAT): an approximate structure
may have missed any document, and its answers are proven only when all documents were scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.milvus.collection import LARGEST_SEARCH, Collection, NearestRows
from pseudoquery.milvus.filters import narrowing, satisfying
from pseudoquery.milvus.rows import EncodedDocument
from pseudoquery.search.error_bounds import rounding_error
from pseudoquery.search.exact_scores import exact_scores
from pseudoquery.search.prove import Candidates, Queries, RankedDocuments, rank_and_prove
from pseudoquery.search.rank import RankedOrdinals
from pseudoquery.search.two_step import RecallDepth
from pseudoquery.storage.filters import Where
from pseudoquery.storage.protocols import StoredDocument
from pseudoquery.storage.segments import Segment
from pseudoquery.storage.vector_view import VectorView, make_view

VECTORS_PER_DOCUMENT = 3
"""How many vectors are asked for at first; most often they are of enough documents."""

BestDocuments = RankedDocuments[list[EncodedDocument]]
"""The best documents for one query."""


class RecalledDocuments:
    """The documents of some answers, in place of the snapshot that an index folder would give."""

    def __init__(self, bests: Sequence[BestDocuments], dimension: int) -> None:
        by_order = {document.order: document for best in bests for document in best.documents}
        self._documents = [by_order[order] for order in sorted(by_order)]
        self._ordinals = {document.order: row for row, document in enumerate(self._documents)}
        self.view = view_of(self._documents, dimension)

    def by_ordinal(self, ordinal: int) -> StoredDocument:
        """Return the document of this ordinal."""
        return self._documents[ordinal].stored

    def ids(self) -> dict[int, str]:
        """Map every document's ordinal to its id."""
        return {row: document.stored.document.id for row, document in enumerate(self._documents)}

    def ranked(self, best: BestDocuments) -> RankedOrdinals:
        """Name the documents of an answer by their ordinals."""
        return RankedOrdinals(
            tuple(self._ordinals[document.order] for document in best.documents),
            tuple(best.scores.tolist()),
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
        first = _EngineStep(self, narrowing(self.where), {})
        return rank_and_prove(first, _Scorer(self), queries, self.top, exact=self.exact)


@dataclass(frozen=True, slots=True)
class _EngineStep:
    """Recalls the documents whose vectors the engine finds."""

    search: MilvusSearch
    expression: str
    known: dict[str, EncodedDocument | None]
    """Documents that were fetched; None where one is gone or fails the filter."""

    def recall(self, queries: Queries, attempt: int) -> Iterator[Candidates[list[EncodedDocument]]]:
        """Ask for vectors, fetch the documents that own them, and bound all others."""
        search, collection = self.search, self.search.collection
        wanted = max(search.depth.documents, search.top)
        first_count = search.depth.vectors or VECTORS_PER_DOCUMENT * wanted
        count = min(first_count * 2**attempt, LARGEST_SEARCH)
        nearest = self._nearest(queries, count)
        with ThreadPoolExecutor(1) as beside:  # the engine lets every request wait a while
            norm = beside.submit(collection.norm)  # of all that it can have seen
            self._fetch({id_ for parts in nearest for part in parts for id_ in part.ids})
        proves = search.exact and collection.exhaustive
        goes_on = count < LARGEST_SEARCH and (search.depth.vectors is None or proves)
        for query, parts in zip(queries, nearest, strict=True):
            ids = {id_ for part in parts for id_ in part.ids}
            documents = [document for id_ in ids if (document := self.known[id_])]
            ceiling = self._ceiling(query, parts, count, norm.result())
            too_few = goes_on and ceiling is not None and len(documents) < wanted
            yield Candidates(documents, ceiling, not too_few, goes_on and proves)

    def _nearest(self, queries: Queries, count: int) -> list[list[NearestRows]]:
        """Ask the engine for all vectors of all queries at once."""
        flat = np.concatenate(list(queries))
        rows = iter(self.search.collection.search(flat, count, self.expression))
        return [[next(rows) for _ in query] for query in queries]

    def _fetch(self, ids: set[str]) -> None:
        """Fetch the documents that are not known yet."""
        new = sorted(ids - self.known.keys())
        read = self.search.collection.read(new)
        allowed = satisfying(
            self.search.where, [document.stored.document for document in read.values()]
        )
        # What was found may be a version that has since been replaced by one without vectors.
        usable = {id_ for id_ in allowed if len(read[id_].vectors)}
        self.known.update({id_: read[id_] if id_ in usable else None for id_ in new})

    def _ceiling(
        self, query: NDArray[np.float32], parts: Sequence[NearestRows], count: int, norm: float
    ) -> float | None:
        """Bound the score of every document that the engine did not return."""
        collection = self.search.collection
        returned = max(len(part.ids) for part in parts)
        if returned < count and (
            collection.exhaustive or returned == collection.count_vectors(self.expression)
        ):
            return None
        if not collection.exhaustive:
            return float(np.inf)
        representation = self.search.representation
        bounded = view_of([], query.shape[1], norm)
        room = len(query) * rounding_error(bounded, query, representation)
        return representation.scale * sum(part.dots[-1] for part in parts) + room


@dataclass(frozen=True, slots=True)
class _Scorer:
    """Ranks documents that were fetched with all of their vectors."""

    search: MilvusSearch

    def rank(
        self, query: NDArray[np.float32], documents: list[EncodedDocument]
    ) -> tuple[list[EncodedDocument], NDArray[np.float64]]:
        """Score documents exactly; return the best, ties in the order in which they were added."""
        view = view_of(documents, query.shape[1])
        scores = exact_scores(view, query, np.arange(len(documents)), self.search.representation)
        return self._best(documents, scores)

    def rank_all(
        self,
        queries: Queries,
        thresholds: Sequence[float],  # noqa: ARG002
    ) -> list[BestDocuments]:
        """Fetch and score all documents, some at a time."""
        nothing: tuple[list[EncodedDocument], NDArray[np.float64]] = ([], np.zeros(0))
        best = [nothing for _ in queries]
        count = 0
        for block in self.search.collection.blocks(self.search.where):
            documents = [document for document in block if len(document.vectors)]
            count += len(documents)
            for row, query in enumerate(queries):
                before, scores = best[row]
                ranked, more = self.rank(query, documents)
                best[row] = self._best(before + ranked, np.concatenate([scores, more]))
        return [RankedDocuments(*ranked, certified=True, candidates=count) for ranked in best]

    def _best(
        self, documents: list[EncodedDocument], scores: NDArray[np.float64]
    ) -> tuple[list[EncodedDocument], NDArray[np.float64]]:
        order = sorted(
            range(len(documents)), key=lambda row: (-scores[row], *documents[row].order)
        )[: self.search.top]
        return [documents[row] for row in order], scores[order]


def view_of(documents: Sequence[EncodedDocument], dimension: int, norm: float = 0.0) -> VectorView:
    """Lay documents side by side, as the scoring functions read them."""
    nothing = np.zeros((0, dimension), dtype=np.float32)
    segment = Segment(
        np.concatenate([nothing, *(document.vectors for document in documents)]),
        np.arange(len(documents), dtype=np.int64),
        np.array([len(document.vectors) for document in documents], dtype=np.int64),
    )
    return make_view(0, 0, (segment,), np.zeros(0, dtype=np.int64), norm)
