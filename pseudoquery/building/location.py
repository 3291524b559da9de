"""Where an index is: in a folder, or in a collection of Milvus, named by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pseudoquery.index import Index

Location: TypeAlias = Path | str
"""A folder, or an address such as http://localhost:19530/papers."""


def is_address(location: Location) -> bool:
    """Say whether a location is an address, and not a folder.

    Examples:
        >>> is_address("http://localhost:19530/papers"), is_address("my-index")
        (True, False)
    """
    return isinstance(location, str) and "://" in location


def index_class(location: Location) -> type[Index]:
    """Choose the class of an index by its location: `Index` or `MilvusIndex`."""
    if is_address(location):
        from pseudoquery.milvus.index import MilvusIndex

        return MilvusIndex
    from pseudoquery.index import Index

    return Index


def open_index(location: Location, **options: Any) -> Index:
    """Open an index; the options are those of `Index.open`, or of `MilvusIndex.open`."""
    return index_class(location).open(location, **options)


def create_index(location: Location, **options: Any) -> Index:
    """Make a new, empty index; the options are those of `create` of its class."""
    return index_class(location).create(location, **options)


def index_exists(location: Location) -> bool:
    """Say whether a location holds an index, be it finished or not."""
    if is_address(location):
        from pseudoquery.milvus.collection import Collection

        return Collection.exists(str(location))
    from pseudoquery.storage.sqlite_errors import sqlite_errors

    folder = Path(location)
    with sqlite_errors(folder):
        return (folder / "index.sqlite").exists()
