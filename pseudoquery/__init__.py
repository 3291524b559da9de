"""Dense retrieval that represents each document by the few questions it can answer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pseudoquery.errors import PseudoqueryError
from pseudoquery.method.presets import PRESETS, preset
from pseudoquery.method.representation import Representation
from pseudoquery.records import Answer, Document, Explanation, Hit, Qrel, Query
from pseudoquery.version import VERSION

if TYPE_CHECKING:
    from pseudoquery.client import Client
    from pseudoquery.encoding.model import load_model, representation_for
    from pseudoquery.index import Index
    from pseudoquery.search.settings import SearchSettings

__version__ = VERSION
__all__ = [
    "PRESETS",
    "Answer",
    "Client",
    "Document",
    "Explanation",
    "Hit",
    "Index",
    "PseudoqueryError",
    "Qrel",
    "Query",
    "Representation",
    "SearchSettings",
    "__version__",
    "load_model",
    "preset",
    "representation_for",
]
_LAZY = {
    "Client": "pseudoquery.client",
    "Index": "pseudoquery.index",
    "SearchSettings": "pseudoquery.search.settings",
    "load_model": "pseudoquery.encoding.model",
    "representation_for": "pseudoquery.encoding.model",
}


def __getattr__(name: str) -> Any:
    """Import a name that needs numpy or torch when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
