"""Who ranks the documents of a store, and how an index reads what was ranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import QueryError
from pseudoquery.method.encoded import QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.method.token_codes import TokenType
from pseudoquery.once import once_property
from pseudoquery.records import Hit
from pseudoquery.search.dense import DenseRanker
from pseudoquery.search.rank import (
    RankedOrdinals,
    rank_bm25,
    rank_dense,
    rank_hybrid,
)
from pseudoquery.search.relevance import Calibration, load_calibration, reason_for_none
from pseudoquery.search.request import RankRequest
from pseudoquery.storage.protocols import StoredDocument
from pseudoquery.storage.store import FolderStore
from pseudoquery.storage.vector_view import VectorView

if TYPE_CHECKING:
    from pseudoquery.search.structures import Structures


class DocumentReader(Protocol):
    """The documents that rankings name, by their ordinals."""

    @property
    def view(self) -> VectorView:
        """The vectors of the documents."""

    def by_ordinal(self, ordinal: int) -> StoredDocument:
        """Read one document."""

    def ids(self) -> Mapping[int, str]:
        """Map ordinals to ids."""


class Searcher(Protocol):
    """Ranks the documents of one store."""

    def rank(
        self,
        request: RankRequest,
        questions: Sequence[QuestionVectors],
        representation: Representation,
    ) -> AbstractContextManager[tuple[DocumentReader, list[RankedOrdinals]]]:
        """Rank documents for questions of these vectors.

        The documents can be read until the block ends.
        """


class FolderSearcher:
    """Ranks the documents of an index folder, with structures that stay in memory."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store

    @contextmanager
    def rank(
        self,
        request: RankRequest,
        questions: Sequence[QuestionVectors],
        representation: Representation,
    ) -> Iterator[tuple[DocumentReader, list[RankedOrdinals]]]:
        """Rank documents of the newest committed state."""
        token_type = self._token_type(request)
        calibration = self._calibration_for(request, token_type)
        with self._store.snapshot() as snapshot:
            if request.mode == "bm25" or not request.queries:
                yield snapshot, rank_bm25(snapshot, request)
                return
            ranker = DenseRanker(
                snapshot, request, self._structures, representation, token_type, calibration
            )
            rank = rank_hybrid if request.mode == "hybrid" else rank_dense
            yield snapshot, rank(ranker, questions)

    def _token_type(self, request: RankRequest) -> TokenType:
        """Say which codes of tokens documents are ranked by, if by any."""
        stored = self._store.settings.tokens
        if request.settings.rank_by == "tokens" and stored == "none":
            raise QueryError(
                f"{self._store.location} stores no tokens to rank by; rank by vectors, or build "
                "the index again with `pseudoquery index --tokens signs`."
            )
        return "none" if request.settings.rank_by == "vectors" else stored

    def _calibration_for(self, request: RankRequest, tokens: TokenType) -> Calibration | None:
        """Find what makes relevances of scores; None if nothing does."""
        calibration: Calibration | None = self._calibration
        reason = reason_for_none(calibration, request, tokens)
        if reason and request.settings.min_relevance is not None:
            raise QueryError(f"{reason}, or leave out min_relevance.")
        return None if reason else calibration

    @once_property
    def _calibration(self) -> Calibration | None:
        return load_calibration(self._store.settings)

    @once_property
    def _structures(self) -> Structures:
        from pseudoquery.search.structures import Structures

        return Structures(self._store.folder)


def read_hits(
    documents: DocumentReader,
    ranking: RankedOrdinals,
    query: NDArray[np.float32] | None,
    representation: Representation,
) -> Iterator[Hit]:
    """Read the documents of a ranking, with the weights of their pseudo queries.

    There are no weights without the query's vectors (vectors, dim).
    """
    weights: list[list[float]] = [[]] * len(ranking.ordinals)
    if query is not None:
        from pseudoquery.search.exact_scores import pseudo_query_weights

        view = documents.view
        positions = np.searchsorted(view.ordinals, np.array(ranking.ordinals, np.int64))
        weights = pseudo_query_weights(view, query, positions, representation)
    relevances = ranking.relevances or [None] * len(ranking.ordinals)
    hits = zip(ranking.ordinals, ranking.scores, weights, relevances, strict=True)
    for ordinal, score, weight, relevance in hits:
        document = documents.by_ordinal(ordinal).document
        yield Hit(
            document.id,
            score,
            document.title,
            document.text,
            document.metadata,
            tuple(weight),
            relevance,
        )
