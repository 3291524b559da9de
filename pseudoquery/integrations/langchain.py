"""A retriever for LangChain.

retriever = PseudoqueryRetriever(source="my-index", top=5, where={"year": {">=": 2020}})
retriever.invoke("How do insects survive the cold?")
"""

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
from pseudoquery.records import Answer, Hit
from pseudoquery.search.settings import Mode


class PseudoqueryRetriever(BaseRetriever):
    """Finds documents in an index or through a service.

    A call may have other settings: `retriever.invoke("...", top=3)`. The score is the metadata's
    `relevance_score`, LangChain's name for it.
    """

    model_config = ConfigDict(extra="forbid", ignored_types=(cached_property,))

    source: Source
    """An index folder, an opened index, a service's address (http://...), or a client of one."""
    top: int = 10
    where: dict[str, Any] | None = None
    exact: bool = False
    mode: Mode = "dense"

    @cached_property
    def _ask(self) -> Callable[..., Answer]:
        return search_function(self.source)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002
        **changes: Any,
    ) -> list[Document]:
        how = {"top": self.top, "where": self.where, "exact": self.exact, "mode": self.mode}
        return [_document(hit) for hit in self._ask(query, **how | changes).hits]


def _document(hit: Hit) -> Document:
    metadata = {**metadata_with_title(hit), "relevance_score": hit.score}
    return Document(page_content=hit.text, id=hit.id, metadata=metadata)
