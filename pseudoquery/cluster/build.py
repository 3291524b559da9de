"""Build an index on a cluster: machines read and encode, and this one keeps what they made.

What a worker has encoded comes back as a shard, and is kept at once: as a file of the index folder,
or as documents in Milvus. A build that was killed, run again, encodes only what is not there yet.
When all shards are there, they are adopted in the order of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pseudoquery.building.build import absolute, build_notes, finish, refuse, unfinished_documents
from pseudoquery.building.folder_shards import FolderShards
from pseudoquery.building.location import Location, create_index, is_address
from pseudoquery.building.milvus_shards import MilvusShards
from pseudoquery.building.shard import (
    Shard,
    Shards,
    decode_documents,
    encode_documents,
    encode_shard,
    group_into_shards,
    shard_name,
)
from pseudoquery.cluster.ray import (
    Work,
    WorkerMessage,
    connect,
    map_on_workers,
    put_shared,
    worker_device,
)
from pseudoquery.corpus.documents import list_shards, read_documents
from pseudoquery.errors import ClusterError, CorpusError, OnBad
from pseudoquery.index import Index
from pseudoquery.milvus.index import MilvusIndex
from pseudoquery.records import Added
from pseudoquery.storage.incoming import batch_documents
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.segment_builder import segment_of_vectors
from pseudoquery.storage.segments import VECTOR_TYPES

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

OnEncoded = Callable[[int], None]


def build_on_cluster(
    cluster: str,
    source: str,
    place: Location,
    *,
    on_bad: OnBad = refuse,
    on_encoded: OnEncoded | None = None,
    columns: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Added]:
    """Create an index of a corpus on a cluster, yielding for each shard that is adopted.

    Every machine has to see the corpus; the index is written by this one. `on_encoded` is told how
    many more documents have come back. Otherwise as `build`, which can finish what this began in a
    folder.
    """
    if source == "-":
        raise CorpusError("a cluster can't read standard input; write it to a file first.")
    # In Milvus documents come in any order, which only this can bring to an end.
    how = {**settings, "on": "a cluster"} if is_address(place) else settings
    asked = build_notes(source, columns, how)
    files = [absolute(file) for file in list_shards(source)]
    # A source that can't be read should leave nothing behind.
    next(read_documents(files[0], on_bad=lambda _: None, columns=columns), None)
    with connect(cluster):
        index = unfinished_documents(source, place, asked, settings)
        if index is None:
            index = create_index(place, notes=asked, **settings)
        kept = _shards_of(index)
        with index.store.writer():
            order = ReadPlan(files, dict(columns or {}), frozenset(kept.names()))
            names = _encode(index, order, kept, on_bad, on_encoded or (lambda _: None))
    # The cluster is free by now.
    yield from kept.adopt(sorted(names), on_bad)
    with index.store.writer() as writer:
        finish(writer)
        kept.clear()


def _shards_of(index: Index) -> Shards:
    if isinstance(index, MilvusIndex):
        return MilvusShards(index.collection)
    return FolderShards(index.store)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What the readers need to know."""

    files: Sequence[str]
    columns: Mapping[str, str]
    there: frozenset[str]
    """The names of the shards that an interrupted build has left."""


def _encode(
    index: Index, order: ReadPlan, kept: Shards, on_bad: OnBad, on_encoded: OnEncoded
) -> set[str]:
    """Let the cluster make all shards that are not there, and keep them; returns all names."""
    names: dict[int, set[str]] = {file: set() for file in range(len(order.files))}
    whole: dict[int, int] = {}
    messages = [({"file": file}, b"") for file in names]
    begin = partial(encoding_worker, put_shared(index.model.to("cpu")), index.settings)
    for facts, body in map_on_workers(messages, begin, partial(read_file, order)):
        for said in facts.get("bad", ()):
            on_bad(CorpusError(said))
        if "shards" in facts:
            whole[facts["file"]] = facts["shards"]
        if "name" in facts and facts["name"] not in names[facts["file"]]:
            if body:
                kept.keep(facts["name"], body)
            names[facts["file"]].add(facts["name"])
            on_encoded(facts["documents"])
    if whole != {file: len(own) for file, own in names.items()}:
        raise ClusterError(
            "the cluster has not sent all that it read; run this again: what has come is not "
            "encoded again."
        )
    return set().union(*names.values())


def read_file(order: ReadPlan, message: WorkerMessage) -> Iterator[WorkerMessage]:
    """Read a file on a machine of the cluster; yields its shards, and at last how many they are.

    Batches are those of a build on one machine. Of a shard that is there, no text travels.
    """
    number = message[0]["file"]
    bad: list[str] = []

    def on_bad(error: CorpusError) -> None:
        bad.append(str(error))

    documents = read_documents(order.files[number], on_bad=on_bad, columns=order.columns)
    count = 0
    for shard in group_into_shards(batch_documents(documents)):
        name = shard_name(number, count, shard)
        facts = {"file": number, "name": name, "documents": sum(map(len, shard))}
        # What is bad travels alone, so that a run that it ends does not wait for what is good.
        if bad:
            yield {"bad": list(bad)}, b""
            bad.clear()
        yield facts, b"" if name in order.there else encode_documents(shard)
        count += 1
    yield {"file": number, "shards": count, "bad": bad}, b""


def encoding_worker(model: Callable[[], MultiVectorEncoder], settings: Settings) -> Work:
    """Begin to encode: makes, of the documents of a shard, the content of its file."""
    from pseudoquery.encoding.encode import encode_documents

    loaded = model().to(worker_device())
    dtype = VECTOR_TYPES[settings.vector_type]
    long: Any = settings.long

    def work(message: WorkerMessage) -> WorkerMessage:
        facts, body = message
        if not body:
            return message
        vectors, cut = [], 0
        documents = decode_documents(body)
        for batch in documents:
            made, left_out = encode_documents(loaded, batch, long)
            vectors += made
            cut += left_out
        segment = segment_of_vectors(vectors, settings.dimension, dtype)
        return facts, encode_shard(Shard(list(chain(*documents)), segment, cut))

    return work
