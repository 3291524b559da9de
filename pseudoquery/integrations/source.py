"""What a retriever searches: an index, an index folder, or a service.

The retrievers for LangChain, LlamaIndex and Haystack share this module.
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
"""An index folder, an `Index`, the address of a service (http://...), or a `Client`."""

_lock = Lock()


def search_function(source: Source) -> Callable[..., Answer]:
    """Return the function that searches a source. It takes the arguments of `Index.search`."""
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        source = Client(source)
    if isinstance(source, Client):
        return source.search
    return partial(_search, source if isinstance(source, Index) else Index.open(source))


def address(source: Source) -> str:
    """Return the address or the folder of a source, from which it can be opened again."""
    if isinstance(source, Client):
        return source.url
    return str(source.location if isinstance(source, Index) else source)


def metadata_with_title(hit: Hit) -> dict[str, Any]:
    """Add the title to the metadata, because the frameworks have no field for it."""
    return {**hit.metadata, "title": hit.title} if hit.title else dict(hit.metadata)


def _search(index: Index, query: str, **how: Any) -> Answer:
    """Search in one thread at a time.

    The frameworks search in many threads at once, and each would load the model: it is a cached
    property, which has no lock since Python 3.12.
    """
    with _lock:
        return index.search(query, **how)
