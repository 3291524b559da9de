"""Where a retriever of another framework looks: an index, its folder, or a service.

The adapters (`langchain`, `llama_index`, `haystack`) differ only in the words of their framework.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from pseudoquery.client import Client
from pseudoquery.index import Index
from pseudoquery.records import Answer, Hit

Source: TypeAlias = str | Path | Index | Client
"""An index folder, an opened index, a service's address (http://...), or a client of one."""

_one_at_a_time = Lock()


def search_function(source: Source) -> Callable[..., Answer]:
    """Return the function that answers a query, with the arguments of `Index.search`."""
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        source = Client(source)
    if isinstance(source, Client):
        return source.search
    return partial(_search, source if isinstance(source, Index) else Index.open(source))


def address(source: Source) -> str:
    """Name a source in a word that can be stored, and opened again."""
    if isinstance(source, Client):
        return source.url
    return str(source.folder if isinstance(source, Index) else source)


def metadata_with_title(hit: Hit) -> dict[str, Any]:
    """Put the title, for which the frameworks have no place, beside the metadata."""
    return {**hit.metadata, "title": hit.title} if hit.title else dict(hit.metadata)


def _search(index: Index, query: str, **how: Any) -> Answer:
    """Search; the frameworks ask from many threads at once, and each would load the model.

    It is a cached property, which has had no lock of its own since Python 3.12.
    """
    with _one_at_a_time:
        return index.search(query, **how)
