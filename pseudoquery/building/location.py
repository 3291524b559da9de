"""Where an index is: in a folder, or in a collection of Milvus, named by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pseudoquery.index import Index

Location: TypeAlias = Path | str
"""A folder, or an address such as http://localhost:19530/papers."""


def is_address(place: Location) -> bool:
    """Say whether this is an address, and not a folder."""
    return isinstance(place, str) and "://" in place


def open_index(place: Location, **how: Any) -> Index:
    """Open an index; `how` as for `Index.open`."""
    if is_address(place):
        from pseudoquery.milvus.index import MilvusIndex

        return MilvusIndex.open(place, **how)
    from pseudoquery.index import Index

    return Index.open(place, **how)


def create_index(place: Location, **how: Any) -> Index:
    """Make a new, empty index; `how` as for `Index.create`, or `MilvusIndex.create`."""
    if is_address(place):
        from pseudoquery.milvus.index import MilvusIndex

        return MilvusIndex.create(place, **how)
    from pseudoquery.index import Index

    return Index.create(place, **how)


def index_exists(place: Location) -> bool:
    """Say whether there is an index, be it finished or not."""
    if is_address(place):
        from pseudoquery.milvus.collection import Collection

        return Collection.is_there(str(place))
    from pseudoquery.storage.sqlite_errors import sqlite_errors

    folder = Path(place)
    with sqlite_errors(folder):
        return (folder / "index.sqlite").exists()
