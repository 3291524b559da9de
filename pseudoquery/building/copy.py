"""An index from a folder to Milvus, or back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pseudoquery.building.location import Location, index_exists, is_address
from pseudoquery.errors import QueryError
from pseudoquery.index import Index
from pseudoquery.milvus.index import MilvusIndex

if TYPE_CHECKING:
    pass


def copy_index(source: Location, target: Location, **how: Any) -> int:
    """Copy an index from a folder to Milvus, or back; returns how many documents were copied.

    `how` is for a collection that is made: its `first_step`.
    """
    if is_address(source) == is_address(target):
        raise QueryError(
            f"{source} and {target} are of one kind; copy from a folder to Milvus, or back."
        )
    if is_address(source):
        return len(MilvusIndex.open(source).to_folder(target))
    if not index_exists(target):
        return len(MilvusIndex.from_folder(str(target), source, **how))
    if how:
        raise QueryError(f"{target} is there already, and has a first step; leave yours out.")
    return MilvusIndex.open(target).import_from(Index.open(source))
