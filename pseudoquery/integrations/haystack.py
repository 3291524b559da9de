"""A retriever for Haystack's pipelines."""

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
"""Haystack's comparisons that have other names in a filter of this library."""


@component
class PseudoqueryRetriever:
    """A Haystack component that searches an index or a service.

    A pipeline with this component can be stored. The token of a service is not stored; the
    component reads it from the environment variable PSEUDOQUERY_TOKEN. Haystack loads components
    only from modules that you allow.

    Examples:
        >>> pipeline = Pipeline()  # doctest: +SKIP
        >>> retriever = PseudoqueryRetriever("my-index", top_k=5)  # doctest: +SKIP
        >>> pipeline.add_component("retriever", retriever)  # doctest: +SKIP
        >>> stored = pipeline.dumps()  # doctest: +SKIP
        >>> Pipeline.loads(stored, allowed_modules=["pseudoquery.haystack"])  # doctest: +SKIP

    Args:
        source: An index folder, an `Index`, the address of a service, or a `Client`.
        top_k: How many documents to return.
        filters: Haystack's comparisons joined by AND, or conditions as in `Index.search`.
        exact: Whether to search until the answer is proven exact.
        mode: "dense", "bm25" or "hybrid".
    """

    __module__ = "pseudoquery.haystack"  # the module that stored pipelines name

    def __init__(
        self,
        source: Source,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        exact: bool = False,
        mode: Mode = "dense",
    ) -> None:
        self.source = source
        self.top_k = top_k
        self.filters = filters
        self.exact = exact
        self.mode = mode
        self._search: Callable[..., Answer] | None = None

    def warm_up(self) -> None:
        """Open the index, or connect to the service."""
        self._search = self._search or search_function(self.source)

    def to_dict(self) -> dict[str, Any]:
        """Write the component as a dictionary, for a stored pipeline."""
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
        """Make the component from such a dictionary."""
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Find documents.

        Args:
            query: The question.
            filters: Replaces the component's filters for this call.
            top_k: Replaces the component's `top_k` for this call.

        Returns:
            The documents, best first, as `{"documents": [...]}`.
        """
        self.warm_up()
        assert self._search
        answer = self._search(
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
        """Find documents as `run` does, in another thread. It takes the same arguments."""
        return await asyncio.to_thread(self.run, query, filters, top_k)


def _document(hit: Hit) -> Document:
    return Document(id=hit.id, content=hit.text, meta=metadata_with_title(hit), score=hit.score)


def _where(filters: Mapping[str, Any] | None) -> Where | None:
    """Turn Haystack's filters into conditions as in `Index.search`, all of which must hold."""
    if not filters or "operator" not in filters:
        return filters
    where: dict[str, dict[str, Any]] = {}
    for field, operator, value in _comparisons(filters):
        conditions = where.setdefault(field, {})
        if operator in conditions:
            raise QueryError(f"the filters compare {field!r} by {operator} twice; compare it once.")
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
        raise QueryError(
            f"the filters join conditions by {operator!r}; use AND, the only one that is supported."
        )
    for condition in conditions:
        yield from _comparisons(condition)
