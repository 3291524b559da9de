"""Shards in Milvus: written into the collection as they come, in any order.

A document's version is its place in the corpus. So documents are in that order, whichever came
first, and the rows of a shard are those of a range of versions. One row notes that a shard is
begun, and another, at last, that it is whole: what a build that was killed has left half-written,
and what is no longer part of the corpus, is known by these and taken away.

Two documents with one id are both written, and the id is noted, as the second in the corpus may
come first. When all shards are there, the first in the corpus stays.
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

BEGUN, WHOLE, DOUBLED = (NOTE_ROW - number for number in (1, 2, 3))
"""Places of the rows that note something of shards."""
VERSIONS_AT_ONCE = 1000


class MilvusShards:
    """The shards of a collection that is being built."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        with collection.snapshot():
            self._begun = {row["version"] for row in collection.rows(_at(BEGUN), ["version"])}
        self._cut: dict[str, int] = {}
        """How many documents were cut, for each shard that was not there before."""

    def names(self) -> list[str]:
        """Name the shards that an interrupted build has left."""
        with self._collection.snapshot():
            return [row["document"] for row in self._collection.rows(_at(WHOLE), ["document"])]

    def keep(self, name: str, content: bytes) -> None:
        """Write the documents of a shard; when this has returned, Milvus has them."""
        there, shard, first = self._collection, decode_shard(content), first_position(name)
        vectors = np.split(shard.segment.decoded(), np.cumsum(shard.segment.counts)[:-1])
        rows = []
        for version, (document, own) in enumerate(
            zip(shard.documents, vectors, strict=True), first
        ):
            rows += there.rows_of(document, own, version)
        with there.writer():
            self._begin(first)
            doubled = self._doubled([document.id for document in shard.documents])
            there.insert_rows([there.bare_row(DOUBLED, id_) for id_ in doubled])
            there.insert_rows(rows)
            there.insert_rows([there.bare_row(WHOLE, name, version=first)])
        self._cut[name] = shard.cut

    def adopt(self, names: Sequence[str], on_bad: OnBad) -> Iterator[Added]:
        """Take away what is not in these shards, and of an id all documents but the first."""
        with self._collection.writer():
            for first in self._begun - set(map(first_position, names)):
                self._remove(first)
            lost = self._settle(on_bad)
        for name in names:
            documents = documents_in(name) - lost[first_position(name)]
            if name in self._cut:
                yield Added(documents, cut=self._cut[name])
            else:
                yield Added(unchanged=documents)

    def clear(self) -> None:
        """Forget the shards of an index that is finished."""
        with self._collection.writer():
            for place in (BEGUN, WHOLE, DOUBLED):
                self._collection.delete_rows(_at(place))

    def _begin(self, first: int) -> None:
        """Note that a shard is begun; whatever is there in its place is taken away."""
        if first in self._begun:
            self._remove(first)
            return
        self._collection.insert_rows([self._collection.bare_row(BEGUN, version=first)])
        self._begun.add(first)

    def _remove(self, first: int) -> None:
        """Take the documents of a shard away; it stays begun, in case not all of them go."""
        self._collection.delete_rows(f"{_at(WHOLE)} and version == {first}")
        end = first + SHARD_DOCUMENTS
        self._collection.delete_rows(f"place >= 0 and version >= {first} and version < {end}")

    def _doubled(self, ids: Sequence[str]) -> list[str]:
        """Find the ids that several of these documents have, or one that is there."""
        numbers = Counter([*ids, *self._collection.known(ids)])
        return [id_ for id_, number in numbers.items() if number > 1]

    def _settle(self, on_bad: OnBad) -> Counter[int]:
        """Leave one document to each id; returns how many each shard has lost."""
        there = self._collection
        doubled = {row["document"] for row in there.rows(_at(DOUBLED), ["document"])}
        found = sorted(
            (one.ordinal, one.document.id, one.document.origin)
            for one in there.versions(sorted(doubled))
        )
        # What others have added meanwhile has a version beyond all places, and was acknowledged.
        places = {id_: place for version, id_, place in found if version >= POSITIONS}
        lost = []
        for version, id_, place in found:
            if version < POSITIONS and id_ in places:
                on_bad(duplicate_id_error(id_, place, places[id_]))
                lost.append(version)
            places.setdefault(id_, place)
        shards = Counter(version - version % SHARD_DOCUMENTS for version in lost)
        # They are no longer whole: if this is killed before the index is finished, they have to
        # be encoded once more.
        self._delete_versions(_at(WHOLE), shards)
        self._delete_versions("place >= 0", lost)
        return shards

    def _delete_versions(self, which: str, versions: Iterable[int]) -> None:
        for some in in_groups(versions, VERSIONS_AT_ONCE):
            self._collection.delete_rows(f"{which} and version in {list(some)}")


def _at(place: int) -> str:
    return f"place == {place}"
