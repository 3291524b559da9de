"""What is Milvus's own: addresses, other collections, torn writes, approximate first steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.model import load_model
from pseudoquery.errors import (
    CorpusError,
    IndexFolderError,
    ModelError,
    PseudoqueryError,
    QueryError,
    ServiceError,
)
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.milvus import collection as milvus_collection
from pseudoquery.milvus.collection import Collection
from pseudoquery.milvus.index import MilvusIndex
from pseudoquery.records import Document
from pseudoquery.search.settings import SearchSettings
from pseudoquery.service.one_vector import search_one_vector
from tests.support.collection import DOCUMENTS

pytestmark = pytest.mark.cluster


@pytest.fixture
def index(address: str, tiny_model: MultiVectorEncoder) -> MilvusIndex:
    made = MilvusIndex.create(address, model=tiny_model)
    made.add(DOCUMENTS)
    return made


def rows_of(collection: Collection, document: Document, version: int) -> list[dict[str, Any]]:
    vectors = np.eye(3, collection.settings.dimension, dtype=np.float32)
    return collection.rows_of(document, vectors, version)


def test_to_milvus_and_back_to_the_bit(
    template: Path, address: str, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    folder = Index.open(template, model=tiny_model)
    there = MilvusIndex.from_folder(address, template, model=tiny_model)
    back = there.to_folder(tmp_path / "back")
    # Milvus stores no codes of tokens, so what comes back has none.
    assert there.settings == back.settings == replace(folder.settings, tokens="none")
    vectors = SearchSettings(rank_by="vectors")
    assert list(back.documents()) == list(there.documents()) == list(folder.documents())
    for query in ("the river", "king and queen", "war"):
        for top in (3, 50):
            answers = [
                opened.search(query, top, exact=True, settings=vectors)
                for opened in (folder, there, back)
            ]
            # The documents, scores and weights, equal to the last bit.
            assert answers[0].hits == answers[1].hits == answers[2].hits
    new = Document("new", "the castle in the winter garden")  # rounded alike, in both places
    there.add([new])
    back.add([new])
    assert there.search("castle", exact=True).hits == back.search("castle", exact=True).hits
    assert there.import_from(folder) == 0
    there.delete(["id 3"])
    assert there.import_from(folder) == 1


def test_an_import_needs_the_same_model(template: Path, address: str, tiny_model_path: str) -> None:
    other = load_model(tiny_model_path, preset("recommended", k=2), device="cpu")
    with pytest.raises(ModelError, match="different models"):
        MilvusIndex.create(address, model=other).import_from(Index.open(template))


def test_it_can_be_opened_again(index: MilvusIndex, tiny_model: MultiVectorEncoder) -> None:
    again = MilvusIndex.open(index.collection.address, model=tiny_model)
    assert again.settings == index.settings
    assert again.search("the river").hits == index.search("the river").hits
    assert again.info()["documents"] == len(DOCUMENTS)
    assert again.info()["answers_can_be_proven"]


def test_answers_are_proven_long_before_everything_is_scored(index: MilvusIndex) -> None:
    words = ["river", "king", "moon", "war", "bread", "ship", "night", "school"]
    few = SearchSettings(recall=4)
    quick = index.search_many(words, 2, settings=few)
    assert {answer.certified for answer in quick} == {True, False}
    proven = index.search_many(words, 2, settings=few, exact=True)
    for first, answer in zip(quick, proven, strict=True):
        assert answer.certified
        assert first.candidates <= answer.candidates < len(DOCUMENTS)


@pytest.mark.parametrize("first_step", ["HNSW", "IVF_FLAT"])
def test_an_approximate_first_step_proves_only_what_was_scored_whole(
    address: str, tiny_model: MultiVectorEncoder, first_step: Any
) -> None:
    index = MilvusIndex.create(address, model=tiny_model, first_step=first_step)
    index.add(DOCUMENTS)
    index = MilvusIndex.open(address, model=tiny_model)
    assert index.info()["first_step"] == first_step
    assert not index.info()["answers_can_be_proven"]
    few = SearchSettings(recall=5)
    assert not index.search("the river", 2, settings=few).certified
    exact = index.search("the river", 2, settings=few, exact=True)
    assert exact.certified
    assert exact.candidates == len(DOCUMENTS)  # all of them were fetched
    everything = index.search("the river", 2)
    assert everything.candidates == len(DOCUMENTS)
    assert everything.certified
    assert everything.hits == exact.hits


def test_more_vectors_are_asked_for_until_there_are_enough_documents(
    address: str, tiny_model: MultiVectorEncoder
) -> None:
    index = MilvusIndex.create(address, model=tiny_model)
    near = np.tile(index.encode([Document("a", "the river")])[0].vectors[:1], (40, 1))
    index.add_vectors([Document(f"near {number}", "") for number in range(3)], [near] * 3)
    index.add(DOCUMENTS)
    # The nearest 120 vectors are of three documents.
    answer = index.search("the river", 10, settings=SearchSettings(recall=10))
    assert len(answer.hits) == 10
    assert answer.candidates >= 10
    asked = SearchSettings(recall_vectors=120)
    assert index.search("the river", 10, settings=asked).candidates < 10


def test_many_rows_are_read_as_few_are(index: MilvusIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    few = index.search("the river", 100, exact=True)
    monkeypatch.setattr(milvus_collection, "FEW_ROWS", 7)
    monkeypatch.setattr(milvus_collection, "ROWS_AT_ONCE", 5)
    assert list(index.documents()) == DOCUMENTS
    assert index.search("the river", 100, exact=True) == few


def test_the_candidates_of_a_search_come_at_once(
    address: str, tiny_model: MultiVectorEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = MilvusIndex.create(address, model=tiny_model)
    count, k = 300, index.representation.k
    vectors = np.random.default_rng(0).standard_normal((count, k, index.settings.dimension))
    index.add_vectors(
        [Document(str(number), "") for number in range(count)], list(vectors.astype(np.float32))
    )
    client = index.collection._client
    asked: list[str] = []

    def counted(ask: Callable[..., Any]) -> Callable[..., Any]:
        def ask_and_count(**how: Any) -> Any:
            asked.append(how["filter"])
            return ask(**how)

        return ask_and_count

    for name in ("query", "query_iterator"):
        monkeypatch.setattr(client, name, counted(getattr(client, name)))
    found = index.collection.read(map(str, range(count)))
    assert [len(found[str(number)].vectors) for number in range(count)] == [k] * count
    assert len(asked) == 1


def test_a_version_that_is_not_complete_is_not_seen(index: MilvusIndex) -> None:
    collection, before = index.collection, DOCUMENTS[0]
    torn = rows_of(collection, Document(before.id, "torn", metadata={"n": -1}), 2**62)
    unknown = rows_of(collection, Document("unknown", "torn", metadata={"n": -1}), 2**62)
    collection.insert_rows([*torn[:2], unknown[0], unknown[2]])
    assert index.get(before.id) == before
    assert index.get("unknown") is None
    assert list(index.documents()) == DOCUMENTS
    assert not list(index.documents({"n": -1}))
    hits = index.search("the river", 100, exact=True).hits
    assert sorted(hit.id for hit in hits) == sorted(document.id for document in DOCUMENTS)
    assert not index.search("the river", where={"n": -1}).hits
    # The next change is newer, and takes what was left behind away.
    index.add([Document(before.id, "new"), Document("unknown", "new")])
    assert len(index) == len(DOCUMENTS) + 1
    assert index.get(before.id) == Document(before.id, "new")


def test_the_newer_of_two_complete_versions_counts(index: MilvusIndex) -> None:
    newer = Document(DOCUMENTS[0].id, "newer", metadata={"n": -1})
    rows = rows_of(index.collection, newer, 2**62)
    index.collection.insert_rows([*rows, *rows])  # a request that was sent twice
    assert index.get(newer.id) == newer
    assert [hit.id for hit in index.search("a", 100, where={"n": -1}).hits] == [newer.id]
    assert not index.search("a", 100, where={"n": 0}).hits
    found = [hit.id for hit in index.search("a", 100).hits]
    assert len(found) == len(set(found)) == len(DOCUMENTS)


def test_two_writers_at_once_leave_each_document_whole(index: MilvusIndex) -> None:
    """Both change the same documents again and again, each through a connection of its own."""
    other = MilvusIndex.open(index.collection.address, model=index.model)
    ids = ["x", "y", "z"]
    texts = {name: [f"the {name} {word}" for word in ("king", "river", "war")] for name in "ab"}

    def write(writer: MilvusIndex, name: str) -> None:
        for text in texts[name]:
            writer.add([Document(id_, text, metadata={"by": text}) for id_ in ids])

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, index, "a"), pool.submit(write, other, "b")]:
            done.result()
    for id_ in ids:
        found = index.get(id_)
        assert found is not None
        assert found.text in (texts["a"][-1], texts["b"][-1]), "a last change counts"
        assert found.metadata == {"by": found.text}, "and it is all of one change"
        assert found == other.get(id_)
    hits = index.search("king", top=100, exact=True).hits
    assert sorted(hit.id for hit in hits if hit.id in ids) == ids
    assert len({hit.id for hit in hits}) == len(hits) == len(DOCUMENTS) + 3


def test_a_document_that_has_lost_its_text_is_not_found_by_the_old_one(index: MilvusIndex) -> None:
    empty = Document(DOCUMENTS[0].id, "")
    no_vectors = np.zeros((0, index.settings.dimension), dtype=np.float32)
    index.collection.insert_rows(index.collection.rows_of(empty, no_vectors, 2**62))
    assert index.get(empty.id) == empty
    found = [hit.id for hit in index.search("a", 100).hits]
    assert sorted(found) == sorted(document.id for document in DOCUMENTS[1:])


values = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, 2.0, 2.5, 2**53 + 1, 10**18, True, False, "", "a", "b", "x" * 70 + "y"]),
    st.sampled_from(["x" * 70, "é", "1", "true"]),
)
fields = st.sampled_from(["n", "m", 'a"b', "missing"])
stored = st.dictionaries(
    fields, st.one_of(values, st.none(), st.lists(st.one_of(values, st.none()), max_size=3))
)
asked = st.dictionaries(
    fields,
    st.one_of(
        values,
        st.none(),
        st.lists(st.one_of(values, st.none()), max_size=3),
        st.dictionaries(st.sampled_from(["<", "<=", ">", ">=", "!=", "="]), values, max_size=2),
    ),
    max_size=2,
)


def test_filters_hold_for_the_same_documents_as_in_a_folder(
    address: str, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    indexes = [
        Index.create(tmp_path / "index", model=tiny_model, tokens="none"),
        MilvusIndex.create(address, model=tiny_model),
    ]
    vector = np.ones((1, indexes[0].settings.dimension), dtype=np.float32)
    rounds = 0

    @settings(max_examples=8, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(stored, min_size=5, max_size=30), st.lists(asked, min_size=8, max_size=15))
    def check(metadata: list[dict[str, Any]], filters: list[dict[str, Any]]) -> None:
        nonlocal rounds
        rounds += 1
        documents = [
            Document(f"{rounds} {n}", "a", "", fields) for n, fields in enumerate(metadata)
        ]
        for index in indexes:
            index.delete([document.id for document in index.documents()])
            index.add_vectors(documents, [vector] * len(documents))
        for where in filters:
            expected, found = (
                [document.id for document in index.documents(where)] for index in indexes
            )
            assert found == expected, where

    check()


def test_vectors_of_any_length_are_proven_right(address: str, tiny_model_path: str) -> None:
    model = load_model(tiny_model_path, preset("paper-passage"), device="cpu")
    index = MilvusIndex.create(address, model=model, vector_type="float32")
    index.add(DOCUMENTS)
    encoded = index.encode(DOCUMENTS)
    longest = max(np.linalg.norm(document.vectors, axis=1).max() for document in encoded)
    assert longest > 1
    assert index.collection.norm() == pytest.approx(longest, rel=1e-6)


@pytest.mark.parametrize(
    "wrong",
    ["localhost:19530", "papers", "http://localhost:19530", "http://a:1/no-name", "ftp://a/b"],
)
def test_an_address_that_is_none(wrong: str) -> None:
    with pytest.raises(ServiceError, match="write it as http://HOST:PORT/NAME"):
        MilvusIndex.open(wrong)


def test_nothing_answers(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ServiceError, match=r"no Milvus answers at http://127\.0\.0\.1:9/papers"):
        MilvusIndex.open("http://127.0.0.1:9/papers")
    assert "Traceback" not in capfd.readouterr().err


def test_a_database_that_is_not_there(milvus: str, capfd: Any) -> None:
    with pytest.raises(PseudoqueryError, match=r"nowhere"):
        MilvusIndex.open(f"{milvus}/nowhere/papers")
    assert "Traceback" not in capfd.readouterr().err


def test_collections_that_are_not_what_they_should_be(
    address: str, tiny_model: MultiVectorEncoder
) -> None:
    with pytest.raises(IndexFolderError, match="has no collection"):
        MilvusIndex.open(address)
    index = MilvusIndex.create(address, model=tiny_model)
    with pytest.raises(IndexFolderError, match="already has a collection"):
        MilvusIndex.create(address, model=tiny_model)
    client = index.collection._client
    client.create_collection(f"{address.rpartition('/')[2]}_other", dimension=4)
    with pytest.raises(IndexFolderError, match="not made by pseudoquery"):
        MilvusIndex.open(f"{address}_other")
    index.collection.delete_rows("place == -1")
    with pytest.raises(IndexFolderError, match="not made by pseudoquery"):
        MilvusIndex.open(address)


def test_another_dimension_or_model(
    address: str, tiny_model: MultiVectorEncoder, tiny_model_path: str
) -> None:
    index = MilvusIndex.create(address, model=tiny_model)
    other = load_model(tiny_model_path, preset("recommended", k=2), device="cpu")
    with pytest.raises(ModelError, match="another model"):
        MilvusIndex.open(address, model=other).search("the river")
    row = index.collection._settings_row()
    index.collection.delete_rows("place == -1")
    row["content"] = row["content"].replace('"dimension": 32', '"dimension": 31')
    index.collection.insert_rows([row])
    with pytest.raises(IndexFolderError, match=r"have 32 dimensions .* should have 31"):
        MilvusIndex.open(address)


def test_what_milvus_can_not_do(index: MilvusIndex) -> None:
    with pytest.raises(QueryError, match="mode 'dense' only"):
        index.search("the river", mode="hybrid")
    with pytest.raises(QueryError, match="'hnsw' can't be chosen"):
        index.search("the river", settings=SearchSettings(structure="hnsw"))
    with pytest.raises(QueryError, match="kept by Milvus"):
        index.verify()
    with pytest.raises(QueryError, match="kept by Milvus"):
        index.repair()
    with pytest.raises(QueryError, match="kept by Milvus, and has no folder"):
        _ = index.folder
    with pytest.raises(QueryError, match="kept by Milvus, which has no such comparison"):
        search_one_vector(index, "the river", 3)
    assert index.location == index.collection.address
    with pytest.raises(CorpusError, match="the id has 2000 bytes"):
        index.add([Document("a" * 2000, "text")])
    with pytest.raises(CorpusError, match="the metadata takes"):
        index.add([Document("a", "text", metadata={"numbers": list(range(20_000))})])
    assert (index.get(""), index.delete([""])) == (None, [])  # the settings have no id
    assert list(MilvusIndex.open(index.collection.address).documents()) == DOCUMENTS
    with pytest.raises(IndexFolderError, match="no first step 'flat'"):
        MilvusIndex.create("http://localhost:1/a", model=index.model, first_step="flat")  # type: ignore[arg-type]


def test_without_pymilvus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(ServiceError, match=r"pip install 'pseudoquery\[milvus\]'"):
        MilvusIndex.open("http://localhost:1/a")
