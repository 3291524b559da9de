"""Build an index on a cluster: its machines read and encode, and this one stores the results.

What a worker has encoded comes back as a shard, and is stored at once: as a file in the index
folder, or as documents in Milvus. A build that was killed, run again, encodes only the missing
shards. When all shards are stored, the index adopts them in the order of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pseudoquery.building.build import (
    absolute_source,
    build_notes,
    open_unfinished,
    refuse,
    remove_build_notes,
)
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
from pseudoquery.storage.segment_builder import segment_of_documents
from pseudoquery.storage.store import folder_store

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

OnEncoded = Callable[[int], None]
"""Called with the number of documents that have come back from the cluster."""


def build_on_cluster(
    cluster: str,
    source: str,
    location: Location,
    *,
    on_bad: OnBad = refuse,
    on_encoded: OnEncoded | None = None,
    columns: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Added]:
    """Create an index of a corpus on a cluster; yield for each shard that the index adopts.

    Every machine has to see the corpus; this machine writes the index. `on_encoded` is called with
    the number of documents of each shard that comes back. Everything else is as with `build`, which
    can also finish an index folder that this function began.
    """
    if source == "-":
        raise CorpusError("a cluster can't read standard input; write it to a file first.")
    # In Milvus, documents arrive in any order, so that only this function can finish such a build.
    noted = {**settings, "on": "a cluster"} if is_address(location) else settings
    notes = build_notes(source, columns, noted)
    files = [absolute_source(file) for file in list_shards(source)]
    # A source that can't be read must leave no index behind.
    next(read_documents(files[0], on_bad=lambda _: None, columns=columns), None)
    with connect(cluster):
        index = open_unfinished(source, location, notes, settings)
        if index is None:
            index = create_index(location, notes=notes, **settings)
        shards = _shards_of(index)
        with index.store.writer():
            plan = ReadPlan(files, dict(columns or {}), frozenset(shards.names()))
            names = _encode(index, plan, shards, on_bad, on_encoded or (lambda _: None))
    # The cluster is free by now: others can use it while this machine adopts the shards.
    yield from shards.adopt(sorted(names), on_bad)
    with index.store.writer() as writer:
        remove_build_notes(writer)
        shards.clear()


def _shards_of(index: Index) -> Shards:
    if isinstance(index, MilvusIndex):
        return MilvusShards(index.collection)
    return FolderShards(folder_store(index.store))


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What the machines that read the corpus need to know."""

    files: Sequence[str]
    columns: Mapping[str, str]
    stored_shards: frozenset[str]
    """The names of the shards that an interrupted build has stored."""


def _encode(
    index: Index, plan: ReadPlan, shards: Shards, on_bad: OnBad, on_encoded: OnEncoded
) -> set[str]:
    """Let the cluster make the missing shards, and store them; return the names of all shards."""
    names: dict[int, set[str]] = {file: set() for file in range(len(plan.files))}
    shard_counts: dict[int, int] = {}
    messages = [({"file": file}, b"") for file in names]
    begin = partial(start_encoding, put_shared(index.model.to("cpu")), index.settings)
    for facts, body in map_on_workers(messages, begin, partial(read_file, plan)):
        for problem in facts.get("bad", ()):
            on_bad(CorpusError(problem))
        if "shards" in facts:
            shard_counts[facts["file"]] = facts["shards"]
        if "name" in facts and facts["name"] not in names[facts["file"]]:
            if body:
                shards.keep(facts["name"], body)
            names[facts["file"]].add(facts["name"])
            on_encoded(facts["documents"])
    if shard_counts != {file: len(shard_names) for file, shard_names in names.items()}:
        raise ClusterError(
            "the cluster has not sent back all that it read; run this again: only the missing "
            "documents are encoded."
        )
    return set().union(*names.values())


def read_file(plan: ReadPlan, message: WorkerMessage) -> Iterator[WorkerMessage]:
    """Read a file on a machine of the cluster; yield its shards, then the number of them.

    Batches are those of a build on one machine. A shard that is stored already travels without its
    texts.
    """
    number = message[0]["file"]
    problems: list[str] = []

    def on_bad(error: CorpusError) -> None:
        problems.append(str(error))

    documents = read_documents(plan.files[number], on_bad=on_bad, columns=plan.columns)
    count = 0
    for shard in group_into_shards(batch_documents(documents)):
        name = shard_name(number, count, shard)
        facts = {"file": number, "name": name, "documents": sum(map(len, shard))}
        # Problems travel alone, so that a build that stops at one does not wait for good documents.
        if problems:
            yield {"bad": list(problems)}, b""
            problems.clear()
        yield facts, b"" if name in plan.stored_shards else encode_documents(shard)
        count += 1
    yield {"file": number, "shards": count, "bad": problems}, b""


def start_encoding(model: Callable[[], MultiVectorEncoder], settings: Settings) -> Work:
    """Return what a worker does to encode the documents of a shard to the content of its file."""
    from pseudoquery.encoding.encode import encode_documents

    loaded = model().to(worker_device())
    long: Any = settings.long

    def work(message: WorkerMessage) -> WorkerMessage:
        facts, body = message
        if not body:
            return message
        documents = decode_documents(body)
        encoded = [
            document
            for batch in documents
            for document in encode_documents(loaded, batch, long, settings.tokens)
        ]
        cut = sum(document.cut for document in encoded)
        segment = segment_of_documents(encoded, settings)
        return facts, encode_shard(Shard(list(chain(*documents)), segment, cut))

    return work
