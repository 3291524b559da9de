"""An index whose store is Milvus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pseudoquery.milvus.index import MilvusIndex

__all__ = ["MilvusIndex"]


def __getattr__(name: str) -> Any:
    """Import the index, and with it pymilvus, on first use."""
    if name != "MilvusIndex":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pseudoquery.milvus.index import MilvusIndex

    return MilvusIndex
