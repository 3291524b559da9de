"""Shards in Milvus: written into the collection as they come, in any order.

A document's version is its position in the corpus. So documents are in that order, whichever came
first, and the rows of a shard are those of a range of versions. One row notes that a shard is
begun, and another, at last, that it is whole. By these rows a build knows, and removes, what a
killed build has left half-written, and what is no longer part of the corpus.

Two documents with one id are both written, and the id is noted, because the second one in the
corpus may come first. When all shards have come, the first one in the corpus stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pseudoquery.building.shard import (
    POSITIONS,
    SHARD_DOCUMENTS,
    decode_shard,
    documents_in,
    first_position,
)
from pseudoquery.errors import OnBad
from pseudoquery.milvus.collection import Collection
from pseudoquery.milvus.rows import NOTE_ROW, in_groups
from pseudoquery.records import Added
from pseudoquery.storage.incoming import duplicate_id_error

BEGUN, WHOLE, DOUBLED = NOTE_ROW - 1, NOTE_ROW - 2, NOTE_ROW - 3
"""Positions (Milvus's field `place`) of the rows that note something of shards."""
VERSIONS_AT_ONCE = 1000


class MilvusShards:
    """The shards of a collection that is being built."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        with collection.snapshot():
            self._begun = {row["version"] for row in collection.rows(_at(BEGUN), ["version"])}
        self._cut: dict[str, int] = {}
        """How many documents were cut, for each shard that this build has stored."""

    def names(self) -> list[str]:
        """Name the shards that an interrupted build has left."""
        with self._collection.snapshot():
            return [row["document"] for row in self._collection.rows(_at(WHOLE), ["document"])]

    def keep(self, name: str, content: bytes) -> None:
        """Write the documents of a shard; when this has returned, Milvus has them."""
        shard, first = decode_shard(content), first_position(name)
        vectors = np.split(shard.segment.decoded(), np.cumsum(shard.segment.counts)[:-1])
        rows = []
        for version, (document, document_vectors) in enumerate(
            zip(shard.documents, vectors, strict=True), first
        ):
            rows += self._collection.rows_of(document, document_vectors, version)
        with self._collection.writer() as collection:
            self._begin(first)
            doubled = self._doubled_ids([document.id for document in shard.documents])
            collection.insert_rows([collection.bare_row(DOUBLED, id_) for id_ in doubled])
            collection.insert_rows(rows)
            collection.insert_rows([collection.bare_row(WHOLE, name, version=first)])
        self._cut[name] = shard.cut

    def adopt(self, names: Sequence[str], on_bad: OnBad) -> Iterator[Added]:
        """Remove what is not in these shards, and all documents of an id but the first."""
        with self._collection.writer():
            for first in self._begun - set(map(first_position, names)):
                self._remove(first)
            removed = self._remove_doubled(on_bad)
        for name in names:
            documents = documents_in(name) - removed[first_position(name)]
            if name in self._cut:
                yield Added(documents, cut=self._cut[name])
            else:
                yield Added(unchanged=documents)

    def clear(self) -> None:
        """Forget the shards of an index that is finished."""
        with self._collection.writer():
            for position in (BEGUN, WHOLE, DOUBLED):
                self._collection.delete_rows(_at(position))

    def _begin(self, first: int) -> None:
        """Note that a shard is begun, and remove what another build has left of it."""
        if first in self._begun:
            self._remove(first)
            return
        self._collection.insert_rows([self._collection.bare_row(BEGUN, version=first)])
        self._begun.add(first)

    def _remove(self, first: int) -> None:
        """Remove the documents of a shard; it stays begun, in case not all of them go."""
        self._collection.delete_rows(f"{_at(WHOLE)} and version == {first}")
        end = first + SHARD_DOCUMENTS
        self._collection.delete_rows(f"place >= 0 and version >= {first} and version < {end}")

    def _doubled_ids(self, ids: Sequence[str]) -> list[str]:
        """Find the ids that several of these documents have, or that the collection has already."""
        counts = Counter([*ids, *self._collection.known(ids)])
        return [id_ for id_, count in counts.items() if count > 1]

    def _remove_doubled(self, on_bad: OnBad) -> Counter[int]:
        """Leave one document to each id; returns how many documents each shard has lost."""
        collection = self._collection
        doubled = {row["document"] for row in collection.rows(_at(DOUBLED), ["document"])}
        documents = sorted(
            (stored.ordinal, stored.document.id, stored.document.origin)
            for stored in collection.versions(sorted(doubled))
        )
        # What others have added meanwhile has a version beyond all positions, and was acknowledged.
        origins = {id_: origin for version, id_, origin in documents if version >= POSITIONS}
        removed = []
        for version, id_, origin in documents:
            if version < POSITIONS and id_ in origins:
                on_bad(duplicate_id_error(id_, origin, origins[id_]))
                removed.append(version)
            origins.setdefault(id_, origin)
        shards = Counter(version - version % SHARD_DOCUMENTS for version in removed)
        # They are no longer whole: if this is killed before the index is finished, they have to
        # be encoded once more.
        self._delete_versions(_at(WHOLE), shards)
        self._delete_versions("place >= 0", removed)
        return shards

    def _delete_versions(self, expression: str, versions: Iterable[int]) -> None:
        for group in in_groups(versions, VERSIONS_AT_ONCE):
            self._collection.delete_rows(f"{expression} and version in {list(group)}")


def _at(position: int) -> str:
    return f"place == {position}"
