"""Build an index on a cluster: machines read and encode, and this one adopts what they made.

What a worker has encoded comes back as a shard: a segment of vectors in the index's own type, with
its documents. It is kept in the index folder under a name that says where its documents stand in
the corpus and what they are. So a shard that was made twice is one file; and a build that was
killed, run again, encodes only what is not there yet. When all are there, they are adopted in the
order of the corpus, each in one transaction, and emptied.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load, save

from pseudoquery.build import SHARDS, absolute, asked_for, finish, refuse, unfinished
from pseudoquery.corpus import OnBad, read_documents, shards
from pseudoquery.errors import ClusterError, CorpusError, IndexFolderError
from pseudoquery.index import Added, Index, batches, distinct
from pseudoquery.ray_cluster import Message, Work, connected, own_device, share, spread
from pseudoquery.records import Document
from pseudoquery.segments import VECTOR_TYPES, Segment, write_durably
from pseudoquery.store import Settings
from pseudoquery.writer import Writer, document_checksum, joined_vectors, without

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

SHARD_BATCHES = 4
"""Batches that are encoded by one worker in one go, and lost with it."""
DIGEST = 32

OnEncoded = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Shard:
    """Documents and their vectors."""

    documents: Sequence[Document]
    segment: Segment
    cut: int


def build_on(
    cluster: str,
    source: str,
    folder: Path,
    *,
    on_bad: OnBad | None = None,
    on_encoded: OnEncoded | None = None,
    columns: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Added]:
    """Create an index of a corpus on a cluster, yielding after each shard that is adopted.

    Every machine has to see the corpus; the index is written by this one. `on_encoded` is told how
    many more documents have come back. Otherwise as `build`, which can finish what this began.
    """
    if source == "-":
        raise CorpusError("a cluster can't read standard input; write it to a file first.")
    asked = asked_for(source, columns, settings)
    files = [absolute(file) for file in shards(source)]
    # A source that can't be read should leave nothing behind.
    next(read_documents(files[0], on_bad=lambda _: None, columns=columns), None)
    with connected(cluster):
        index = unfinished(source, folder, asked, settings)
        if index is None:
            index = Index.create(folder, notes=asked, **settings)
        with index.store.writer():
            order = Order(files, dict(columns or {}), frozenset(_names(folder)))
            names = _encode(index, order, on_bad or refuse, on_encoded or (lambda _: None))
    # The cluster is free by now.
    with index.store.writer() as writer:
        for name in sorted(names):
            yield _adopt(folder, name, writer, on_bad or refuse)
        finish(folder, writer)


@dataclass(frozen=True, slots=True)
class Order:
    """What the readers need to know."""

    files: Sequence[str]
    columns: Mapping[str, str]
    there: frozenset[str]
    """The names of the shards that an interrupted build has left."""


def _encode(index: Index, order: Order, on_bad: OnBad, on_encoded: OnEncoded) -> set[str]:
    """Let the cluster make all shards that are not there, and keep them; returns all names."""
    kept: dict[int, set[str]] = {file: set() for file in range(len(order.files))}
    whole: dict[int, int] = {}
    messages = [({"file": file}, b"") for file in kept]
    begin = partial(encoder, share(index.model.to("cpu")), index.settings)
    for facts, body in spread(messages, begin, partial(read_file, order)):
        for said in facts.get("bad", ()):
            on_bad(CorpusError(said))
        if "shards" in facts:
            whole[facts["file"]] = facts["shards"]
        if "name" in facts:
            if body:
                write_durably(_path(index.folder, facts["name"]), body)
            kept[facts["file"]].add(facts["name"])
            on_encoded(facts["documents"])
    if whole != {file: len(names) for file, names in kept.items()}:
        raise ClusterError(
            "the cluster has not sent all that it read; run this again: what has come is not "
            "encoded again."
        )
    return set().union(*kept.values())


def read_file(order: Order, message: Message) -> Iterator[Message]:
    """Read a file on a machine of the cluster; yields its shards, and at last how many they are.

    Batches are those of a build on one machine. Of a shard that is there, no text travels.
    """
    number = message[0]["file"]
    bad: list[str] = []

    def on_bad(error: CorpusError) -> None:
        bad.append(str(error))

    documents = read_documents(order.files[number], on_bad=on_bad, columns=order.columns)
    count = 0
    for shard in _grouped(batches(documents)):
        name = _shard_name(number, count, shard)
        facts = {"file": number, "name": name, "documents": sum(map(len, shard))}
        # What is bad travels alone, so that a run that it ends does not wait for what is good.
        if bad:
            yield {"bad": list(bad)}, b""
            bad.clear()
        yield facts, b"" if name in order.there else _packed(shard)
        count += 1
    yield {"file": number, "shards": count, "bad": bad}, b""


def encoder(model: Callable[[], MultiVectorEncoder], settings: Settings) -> Work:
    """Begin to encode: makes, of the documents of a shard, the content of its file."""
    from pseudoquery.encoding import encode_documents

    loaded = model().to(own_device())
    dtype = VECTOR_TYPES[settings.vector_type]
    long: Any = settings.long

    def work(message: Message) -> Message:
        facts, body = message
        if not body:
            return message
        vectors, cut = [], 0
        documents = _unpacked(body)
        for batch in documents:
            made, left_out = encode_documents(loaded, batch, long)
            vectors += made
            cut += left_out
        segment = joined_vectors(vectors, settings.dimension, dtype)
        return facts, _content(Shard(list(chain(*documents)), segment, cut))

    return work


def _adopt(folder: Path, name: str, writer: Writer, on_bad: OnBad) -> Added:
    """Take a shard into the index, but for documents that are there already."""
    path = _path(folder, name)
    content = path.read_bytes()
    if not content:  # it was adopted before
        return Added(unchanged=_documents_in(name))
    shard = _shard(content, path)
    kept = {document.id: document for document in distinct(list(shard.documents), writer, on_bad)}
    known = writer.known(kept)
    updated = unchanged = 0
    dropped: list[int] = []
    new: list[Document] = []
    for place, document in enumerate(shard.documents):
        checksum = known[document.id][0] if document.id in known else None
        if kept.get(document.id) is not document:
            dropped.append(place)
        elif checksum == document_checksum(document):
            dropped.append(place)
            unchanged += 1
        else:
            updated += checksum is not None
            new.append(document)
    if new:
        writer.adopt(new, without(shard.segment, np.array(dropped, dtype=np.int64)))
    os.truncate(path, 0)
    return Added(len(new) - updated, updated, unchanged, shard.cut)


def _grouped(batched: Iterable[list[Document]]) -> Iterator[list[list[Document]]]:
    batched = iter(batched)
    while shard := list(islice(batched, SHARD_BATCHES)):
        yield shard


def _shard_name(file: int, number: int, shard: Sequence[Sequence[Document]]) -> str:
    """Name a shard by its place in the corpus, its size and its content."""
    digest = hashlib.blake2b(digest_size=8)
    for batch in shard:
        for document in batch:
            digest.update(document_checksum(document) + document.place.encode())
        digest.update(b"batch")
    return f"{file:06d}-{number:08d}-{sum(map(len, shard))}-{digest.hexdigest()}"


def _documents_in(name: str) -> int:
    return int(name.split("-")[2])


def _path(folder: Path, name: str) -> Path:
    return folder / SHARDS / f"{name}.shard"


def _names(folder: Path) -> Iterator[str]:
    return (path.stem for path in (folder / SHARDS).glob("*.shard"))


def _packed(shard: Sequence[Sequence[Document]]) -> bytes:
    return json.dumps([[astuple(document) for document in batch] for batch in shard]).encode()


def _unpacked(content: bytes) -> list[list[Document]]:
    return [[Document(*fields) for fields in batch] for batch in json.loads(content)]


def _content(shard: Shard) -> bytes:
    """Write a shard as a safetensors file, with its checksum before it."""
    text = _packed([shard.documents])
    arrays = {
        "vectors": shard.segment.vectors,
        "counts": shard.segment.counts,
        "documents": np.frombuffer(text, dtype=np.uint8),
        "cut": np.array([shard.cut], dtype=np.int64),
    }
    if shard.segment.scales is not None:
        arrays["scales"] = shard.segment.scales
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    return hashlib.sha256(content).digest() + content


def _shard(content: bytes, path: Path) -> Shard:
    """Undo `_content`."""
    if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
        raise IndexFolderError(
            f"{path} is damaged; remove it and run this again, which encodes its documents anew."
        )
    arrays = load(content[DIGEST:])
    (documents,) = _unpacked(arrays["documents"].tobytes())
    ordinals = np.arange(len(documents), dtype=np.int64)
    segment = Segment(arrays["vectors"], ordinals, arrays["counts"], arrays.get("scales"))
    return Shard(documents, segment, int(arrays["cut"][0]))
