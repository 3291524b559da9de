"""A retriever for Haystack's pipelines, which can be written to a file and read again.

pipeline.add_component("retriever", PseudoqueryRetriever("my-index", top_k=5))
text = pipeline.dumps()
Pipeline.loads(text, allowed_modules=["pseudoquery.haystack"])

Haystack reads only what its user has said to trust, so it wants to be told the module's name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ImportError as error:
    raise ImportError(
        "haystack-ai is not installed; run: pip install 'pseudoquery[haystack]'"
    ) from error

from pseudoquery.errors import QueryError
from pseudoquery.integrations.source import Source, address, metadata_with_title, search_function
from pseudoquery.records import Answer, Hit
from pseudoquery.search.settings import Mode
from pseudoquery.storage.filters import Where

_OPERATORS = {"==": "=", "in": "=", "not in": "!="}
"""Haystack's comparisons that have another name here."""


@component
class PseudoqueryRetriever:
    """A Haystack component over an index or a service.

    A pipeline with it can be stored, without its token, which is read from PSEUDOQUERY_TOKEN.

    Args:
        source: An index folder, an `Index`, the address of a service, or a `Client`.
        top_k: How many documents to return.
        filters: Haystack's comparisons joined by AND, or conditions as in `Index.search`.
        exact: Whether to search until the answer is proven exact.
        mode: "dense", "bm25" or "hybrid".
    """

    __module__ = "pseudoquery.haystack"  # stored pipelines name it so, wherever the class is

    def __init__(
        self,
        source: Source,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        exact: bool = False,
        mode: Mode = "dense",
    ) -> None:
        """Take an index folder, an opened index, a service's address, or a client of one."""
        self.source = source
        self.top_k = top_k
        self.filters = filters
        self.exact = exact
        self.mode = mode
        self._ask: Callable[..., Answer] | None = None

    def warm_up(self) -> None:
        """Open the index."""
        self._ask = self._ask or search_function(self.source)

    def to_dict(self) -> dict[str, Any]:
        """Describe the component, for a stored pipeline."""
        return default_to_dict(
            self,
            source=address(self.source),
            top_k=self.top_k,
            filters=self.filters,
            exact=self.exact,
            mode=self.mode,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PseudoqueryRetriever:
        """Make the component from its description."""
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Find documents. `filters` and `top_k` replace the component's for this call."""
        self.warm_up()
        assert self._ask
        answer = self._ask(
            query,
            top=self.top_k if top_k is None else top_k,
            where=_where(self.filters if filters is None else filters),
            exact=self.exact,
            mode=self.mode,
        )
        return {"documents": [_document(hit) for hit in answer.hits]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Find documents as `run` does, in another thread."""
        return await asyncio.to_thread(self.run, query, filters, top_k)


def _document(hit: Hit) -> Document:
    return Document(id=hit.id, content=hit.text, meta=metadata_with_title(hit), score=hit.score)


def _where(filters: Mapping[str, Any] | None) -> Where | None:
    """Say Haystack's filters in this library's words, in which all conditions must hold."""
    if not filters or "operator" not in filters:
        return filters
    where: dict[str, dict[str, Any]] = {}
    for field, operator, value in _comparisons(filters):
        conditions = where.setdefault(field, {})
        if operator in conditions:
            raise QueryError(f"the filters compare {field!r} by {operator} twice; once is enough.")
        conditions[operator] = value
    return where


def _comparisons(filters: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    try:
        operator = filters["operator"]
        if "field" in filters:
            name = filters["field"].removeprefix("meta.")
            yield name, _OPERATORS.get(operator, operator), filters["value"]
            return
        conditions = list(filters["conditions"])
    except (KeyError, TypeError, AttributeError) as error:
        raise QueryError(f"the filters are not in Haystack's form: {filters!r:.200}.") from error
    if operator != "AND":
        raise QueryError(f"the filters join conditions by {operator!r}; only AND can be used.")
    for condition in conditions:
        yield from _comparisons(condition)
