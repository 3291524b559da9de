"""Shards that come in any order, from builds that are killed at any moment, make one index."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pseudoquery.building.build import refuse
from pseudoquery.building.milvus_shards import MilvusShards
from pseudoquery.building.shard import Shard, encode_shard, shard_name
from pseudoquery.errors import CorpusError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.milvus.collection import Collection
from pseudoquery.records import Document
from pseudoquery.storage.incoming import duplicate_id_error
from pseudoquery.storage.segment_builder import segment_of_documents
from tests.cluster.conftest import new_name
from tests.support.crash_writer import SETTINGS as FOLDER_SETTINGS

pytestmark = pytest.mark.cluster

SETTINGS = replace(FOLDER_SETTINGS, tokens="none")

Corpus = list[list[list[Document]]]
"""Files of shards of documents."""


def vectors_of(document: Document) -> NDArray[np.float32]:
    """Make up to three vectors that are this document's alone."""
    chance = np.random.default_rng([*document.id.encode(), *document.text.encode()])
    return chance.integers(-9, 9, (len(document.text), SETTINGS.dimension)).astype(np.float32)


def encode(document: Document) -> DocumentVectors:
    return DocumentVectors(vectors_of(document))


def made(corpus: Corpus) -> dict[str, bytes]:
    """Do what a cluster does."""
    shards = {}
    for file, parts in enumerate(corpus):
        for number, documents in enumerate(parts):
            segment = segment_of_documents([*map(encode, documents)], SETTINGS)
            name = shard_name(file, number, [documents])
            shards[name] = encode_shard(Shard(documents, segment, cut=1))
    return shards


def expected(corpus: Corpus) -> tuple[list[Document], list[str]]:
    """Read a corpus in order; returns the documents of an index, and what is said of others."""
    first_of_id: dict[str, Document] = {}
    said = []
    for document in (document for file in corpus for shard in file for document in shard):
        first = first_of_id.setdefault(document.id, document)
        if first is not document:
            said.append(str(duplicate_id_error(document.id, document.origin, first.origin)))
    return list(first_of_id.values()), said


class Killed(BaseException):
    """What ends a build at once."""


class Dying:
    """A connection that breaks at one of its writes: before it, within it or after it."""

    def __init__(self, client: Any, writes: int, when: str) -> None:
        self._client, self._writes, self._when = client, writes, when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def insert(self, name: str, rows: list[Any], **how: Any) -> None:
        self._write(lambda some: self._client.insert(name, some, **how), rows)

    def delete(self, name: str, filter: str, **how: Any) -> None:  # noqa: A002
        rows = self._client.query(name, filter, ["row"], consistency_level="Strong")
        keys = [row["row"] for row in rows]
        self._write(lambda some: self._client.delete(name, ids=some, **how), keys)

    def _write(self, write: Callable[[Any], Any], rows: list[Any]) -> None:
        self._writes -= 1
        if not self._writes:
            rows = rows[: {"before": 0, "within": len(rows) // 2, "after": len(rows)}[self._when]]
        if rows:
            write(rows)
        if not self._writes:
            raise Killed


def build(collection: Collection, corpus: Corpus, on_bad: Any, seed: int = 0) -> list[int]:
    """Build as far as it comes; returns how many documents were added, and were there."""
    shards, content = MilvusShards(collection), made(corpus)
    there = set(shards.names())
    for name in random.Random(seed).sample(sorted(content), len(content)):
        if name not in there:
            shards.keep(name, content[name])
    done = list(shards.adopt(sorted(content), on_bad))
    assert sum(batch.cut for batch in done) == len(content.keys() - there)
    return [sum(getattr(batch, name) for batch in done) for name in ("added", "unchanged")]


def check(collection: Collection, documents: Sequence[Document]) -> None:
    """Each document is there once, in the order of the corpus, with its own vectors."""
    encoded = [document for block in collection.blocks() for document in block]
    assert [document.stored.document for document in encoded] == documents
    for document in encoded:
        np.testing.assert_array_equal(document.vectors, vectors_of(document.stored.document))
    assert collection.count() == len(documents)
    assert collection.count_vectors() == sum(len(document.text) for document in documents)
    assert not list(collection.rows("place < -1", ["place"]))


def placed(files: list[list[list[tuple[str, str]]]]) -> Corpus:
    """Give each document its place."""
    lines = [count(1) for _ in files]
    return [
        [
            [
                Document(id_, text, origin=f"{file}.jsonl line {next(lines[file])}")
                for id_, text in shard
            ]
            for shard in shards
        ]
        for file, shards in enumerate(files)
    ]


def random_corpus(chance: random.Random) -> Corpus:
    """Make a corpus of few ids, so that some are used twice."""

    def document() -> tuple[str, str]:
        return chance.choice("abcdef"), "xyz"[: chance.randrange(4)]

    def shard() -> list[tuple[str, str]]:
        return [document() for _ in range(chance.randint(1, 3))]

    return placed([[shard() for _ in range(chance.randint(1, 2))] for _ in range(2)])


@pytest.mark.parametrize("when", ["before", "within", "after"])
def test_a_build_that_was_killed_ends_as_if_it_had_not_been(milvus: str, when: str) -> None:
    chance = random.Random(when)
    killed = 0
    for writes in range(1, 14):
        first = random_corpus(chance)
        last = chance.choice([first, random_corpus(chance)])
        address = f"{milvus}/{new_name()}"
        collection = Collection.create(address, SETTINGS)
        collection._client = Dying(collection._client, writes, when)
        try:
            build(collection, first, lambda _: None, seed=writes)
        except Killed:
            killed += 1
        told: list[CorpusError] = []
        collection = Collection.open(address)
        documents, said = expected(last)
        assert sum(build(collection, last, told.append)) == len(documents)
        assert [*map(str, told)] == said
        MilvusShards(collection).clear()
        check(collection, documents)
    assert killed > 8


DOUBLED = placed([[[("a", "x"), ("b", "x")], [("c", "x"), ("a", "xy")]], [[("b", "xyz")]]])


def test_a_second_document_of_an_id_ends_a_build(address: str) -> None:
    collection = Collection.create(address, SETTINGS)
    said = r"^0\.jsonl line 4: the id 'a' was already used in 0\.jsonl line 1;"
    with pytest.raises(CorpusError, match=said):
        build(collection, DOUBLED, refuse)
    assert collection.count() == 5  # nothing was taken away, so it can be the other one that goes
    corrected = placed([[[("z", "x"), ("b", "x")], [("c", "x"), ("a", "xy")]], [[("d", "xyz")]]])
    assert build(collection, corrected, refuse) == [3, 2]
    MilvusShards(collection).clear()
    check(collection, expected(corrected)[0])


def test_what_others_have_added_meanwhile_stays(address: str) -> None:
    collection = Collection.create(address, SETTINGS)
    theirs = Document("b", "xyz", origin="theirs.jsonl line 1")
    collection.add([theirs], [encode(theirs)])
    told: list[CorpusError] = []
    assert build(collection, DOUBLED, told.append) == [2, 0]
    assert [str(error).partition(";")[0] for error in told] == [
        "0.jsonl line 2: the id 'b' was already used in theirs.jsonl line 1",
        "0.jsonl line 4: the id 'a' was already used in 0.jsonl line 1",
        "1.jsonl line 1: the id 'b' was already used in theirs.jsonl line 1",
    ]
    MilvusShards(collection).clear()
    first, _, c = expected(DOUBLED)[0]
    check(collection, [first, c, theirs])


def test_a_corpus_that_is_changed_and_changed_back(address: str) -> None:
    before, after = (placed([[[(id_, "x")]]]) for id_ in "ab")
    build(Collection.create(address, SETTINGS), before, refuse)
    collection = Collection.open(address)
    collection._client = Dying(collection._client, 2, "after")
    with pytest.raises(Killed):
        build(collection, after, refuse)
    collection = Collection.open(address)
    assert build(collection, before, refuse) == [1, 0]
    MilvusShards(collection).clear()
    check(collection, expected(before)[0])
