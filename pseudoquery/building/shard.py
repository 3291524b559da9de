"""A shard: documents that one worker of a cluster has encoded in one go, and their vectors.

Its name says where its documents stand in the corpus and what they are. So a shard that was made
twice counts once, and a build that was killed knows which shards it need not make again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Protocol

import numpy as np
from safetensors.numpy import load, save

from pseudoquery.errors import OnBad
from pseudoquery.records import Added, Document
from pseudoquery.storage.incoming import BATCH_DOCUMENTS
from pseudoquery.storage.schema import document_checksum
from pseudoquery.storage.segments import Segment, token_arrays, tokens_in

SHARD_BATCHES = 4
"""Batches that are encoded by one worker in one go, and lost with it."""
SHARD_DOCUMENTS = SHARD_BATCHES * BATCH_DOCUMENTS
FILES, SHARDS_OF_A_FILE = 10**6, 10**8
"""The names of shards have room for so many files, and shards of a file."""
POSITIONS = FILES * SHARDS_OF_A_FILE * SHARD_DOCUMENTS
DIGEST = 32


@dataclass(frozen=True, slots=True)
class Shard:
    """Documents and their vectors."""

    documents: Sequence[Document]
    segment: Segment
    cut: int


class Shards(Protocol):
    """Where shards are stored as they come, and made into one index when all have come."""

    def names(self) -> Iterable[str]:
        """Name the shards that an interrupted build has left."""

    def keep(self, name: str, content: bytes) -> None:
        """Store a shard; once this has returned, the shard is not encoded again."""

    def adopt(self, names: Sequence[str], on_bad: OnBad) -> Iterator[Added]:
        """Make an index of the shards with these names, in the order of the corpus."""

    def clear(self) -> None:
        """Forget the shards of an index that is finished."""


def group_into_shards(batched: Iterable[list[Document]]) -> Iterator[list[list[Document]]]:
    """Group batches into shards."""
    batched = iter(batched)
    while shard := list(islice(batched, SHARD_BATCHES)):
        yield shard


def shard_name(file: int, position: int, shard: Sequence[Sequence[Document]]) -> str:
    """Name a shard by its file, its position in the file, its size and its content."""
    digest = hashlib.blake2b(digest_size=8)
    for batch in shard:
        for document in batch:
            digest.update(document_checksum(document) + document.origin.encode())
        digest.update(b"batch")
    return f"{file:06d}-{position:08d}-{sum(map(len, shard))}-{digest.hexdigest()}"


def documents_in(name: str) -> int:
    """Say how many documents a shard has."""
    return int(name.split("-")[2])


def first_position(name: str) -> int:
    """Return the position of a shard's first document in the corpus; positions have gaps."""
    file, position = map(int, name.split("-")[:2])
    return (file * SHARDS_OF_A_FILE + position) * SHARD_DOCUMENTS


def encode_documents(shard: Sequence[Sequence[Document]]) -> bytes:
    """Write batches of documents as JSON."""
    return json.dumps([[astuple(document) for document in batch] for batch in shard]).encode()


def decode_documents(content: bytes) -> list[list[Document]]:
    """Read what `encode_documents` has written."""
    return [[Document(*fields) for fields in batch] for batch in json.loads(content)]


def encode_shard(shard: Shard) -> bytes:
    """Write a shard as a safetensors file, with its checksum before it."""
    text = encode_documents([shard.documents])
    arrays = {
        "vectors": shard.segment.vectors,
        "counts": shard.segment.counts,
        "documents": np.frombuffer(text, dtype=np.uint8),
        "cut": np.array([shard.cut], dtype=np.int64),
    }
    if shard.segment.scales is not None:
        arrays["scales"] = shard.segment.scales
    if shard.segment.tokens is not None:
        arrays |= token_arrays(shard.segment.tokens)
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    return hashlib.sha256(content).digest() + content


def is_whole_shard(content: bytes) -> bool:
    """Say whether this is all that `encode_shard` has written."""
    return hashlib.sha256(content[DIGEST:]).digest() == content[:DIGEST]


def decode_shard(content: bytes) -> Shard:
    """Read what `encode_shard` has written."""
    arrays = load(content[DIGEST:])
    (documents,) = decode_documents(arrays["documents"].tobytes())
    ordinals = np.arange(len(documents), dtype=np.int64)
    segment = Segment(
        arrays["vectors"],
        ordinals,
        arrays["counts"],
        arrays.get("scales"),
        tokens=tokens_in(arrays),
    )
    return Shard(documents, segment, int(arrays["cut"][0]))
