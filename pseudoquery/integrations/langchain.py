"""A retriever for LangChain."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise ImportError(
        "langchain-core is not installed; run: pip install 'pseudoquery[langchain]'"
    ) from error
from pydantic import ConfigDict

from pseudoquery.integrations.source import Source, metadata_with_title, search_function
from pseudoquery.once import once_property
from pseudoquery.records import Answer, Hit
from pseudoquery.search.settings import Mode


class PseudoqueryRetriever(BaseRetriever):
    """A LangChain retriever that searches an index or a service.

    A call can override any setting. The score is in the metadata, as `relevance_score`.

    Examples:
        >>> where = {"year": {">=": 2020}}
        >>> retriever = PseudoqueryRetriever(source="my-index", top=5, where=where)
        >>> retriever.invoke("How do bees survive the winter?", top=3)  # doctest: +SKIP
    """

    model_config = ConfigDict(extra="forbid", ignored_types=(cached_property,))

    source: Source
    """An index folder, an `Index`, the address of a service, or a `Client`."""
    top: int = 10
    """How many documents to return."""
    where: dict[str, Any] | None = None
    """Conditions on the metadata; see `Index.search`."""
    exact: bool = False
    """Whether to search until the answer is proven exact."""
    mode: Mode = "dense"
    """"dense", "bm25" or "hybrid"."""

    @once_property
    def _search(self) -> Callable[..., Answer]:
        return search_function(self.source)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002
        **changes: Any,
    ) -> list[Document]:
        how = {"top": self.top, "where": self.where, "exact": self.exact, "mode": self.mode}
        return [_document(hit) for hit in self._search(query, **how | changes).hits]


def _document(hit: Hit) -> Document:
    metadata = {**metadata_with_title(hit), "relevance_score": hit.score}
    return Document(page_content=hit.text, id=hit.id, metadata=metadata)
