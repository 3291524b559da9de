"""A retriever for LlamaIndex."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as error:
    raise ImportError(
        "llama-index-core is not installed; run: pip install 'pseudoquery[llama-index]'"
    ) from error

from pseudoquery.integrations.source import Source, metadata_with_title, search_function
from pseudoquery.once import once_property
from pseudoquery.records import Answer, Hit
from pseudoquery.search.settings import Mode
from pseudoquery.storage.filters import Where


class PseudoqueryRetriever(BaseRetriever):
    """A LlamaIndex retriever that searches an index or a service.

    Examples:
        >>> retriever = PseudoqueryRetriever("my-index", top=5, where={"year": {">=": 2020}})
        >>> retriever.retrieve("How do bees survive the winter?")  # doctest: +SKIP

    Args:
        source: An index folder, an `Index`, the address of a service, or a `Client`.
        top: How many documents to return.
        where: Conditions on the metadata; see `Index.search`.
        exact: Whether to search until the answer is proven exact.
        mode: "dense", "bm25" or "hybrid".
        callback_manager: LlamaIndex's manager of callbacks.
    """

    def __init__(
        self,
        source: Source,
        *,
        top: int = 10,
        where: Where | None = None,
        exact: bool = False,
        mode: Mode = "dense",
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self._source = source
        self._how = {"top": top, "where": where, "exact": exact, "mode": mode}

    @once_property
    def _search(self) -> Callable[..., Answer]:
        return search_function(self._source)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in self._search(query_bundle.query_str, **self._how).hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _node(hit: Hit) -> NodeWithScore:
    node = TextNode(id_=hit.id, text=hit.text, metadata=metadata_with_title(hit))
    return NodeWithScore(node=node, score=hit.score)
