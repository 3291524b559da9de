"""Copy an index from a folder to Milvus, or back."""

from __future__ import annotations

from typing import Any

from pseudoquery.building.location import Location, index_exists, is_address
from pseudoquery.errors import QueryError
from pseudoquery.index import Index
from pseudoquery.milvus.index import MilvusIndex


def copy_index(source: Location, target: Location, **options: Any) -> int:
    """Copy an index from a folder to Milvus, or back; returns how many documents were copied.

    The options are for a new collection: its `first_step`.
    """
    if is_address(source) == is_address(target):
        raise QueryError(
            f"{source} and {target} are of one kind; copy from a folder to Milvus, or back."
        )
    if is_address(source):
        return len(MilvusIndex.open(source).to_folder(target))
    if not index_exists(target):
        return len(MilvusIndex.from_folder(str(target), source, **options))
    if options:
        raise QueryError(
            f"{target} is there already, and its first step can't be changed; leave yours out."
        )
    return MilvusIndex.open(target).import_from(Index.open(source))
