"""Who ranks the documents of a collection, and what can't be asked of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pseudoquery.errors import QueryError
from pseudoquery.method.encoded import QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.milvus.collection import Collection
from pseudoquery.search.rank import RankedOrdinals
from pseudoquery.search.request import RankRequest
from pseudoquery.search.searcher import DocumentReader


class MilvusSearcher:
    """Ranks the documents of a collection; the engine recalls them, and they are scored here."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    @contextmanager
    def rank(
        self,
        request: RankRequest,
        questions: Sequence[QuestionVectors],
        representation: Representation,
    ) -> Iterator[tuple[DocumentReader, list[RankedOrdinals]]]:
        """Rank documents; those that the rankings name have been fetched."""
        from pseudoquery.milvus.search import MilvusSearch, RecalledDocuments
        from pseudoquery.search.two_step import RecallDepth

        _check(request)
        depth = RecallDepth(request.settings.recall, request.settings.recall_vectors)
        with self._collection.snapshot() as collection:
            search = MilvusSearch(
                collection, representation, request.top, depth, request.where, request.exact
            )
            answers = search.best([question.vectors for question in questions])
            documents = RecalledDocuments(answers, collection.settings.dimension)
            yield documents, [documents.ranked(answer) for answer in answers]


def _check(request: RankRequest) -> None:
    if request.mode != "dense":
        raise QueryError(
            f"in Milvus documents are found by mode 'dense' only, not {request.mode!r}."
        )
    if request.settings.rank_by == "tokens":
        raise QueryError("Milvus stores no tokens to rank by; rank by vectors.")
    if request.settings.min_relevance is not None:
        raise QueryError(
            "hits that are ranked by vectors alone, as in Milvus, have no relevance; "
            "leave out min_relevance."
        )
    if request.settings.structure != "auto":
        raise QueryError(
            f"the structure {request.settings.structure!r} can't be chosen for a search in "
            "Milvus; choose the collection's `first_step` when it is made."
        )
