"""The one class that users meet: adding, deleting, searching, reopening."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.model import load_model
from pseudoquery.errors import (
    CorpusError,
    IndexFolderError,
    ModelError,
    PseudoqueryError,
    QueryError,
)
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.records import Added, Answer, Document
from pseudoquery.search.settings import SearchSettings
from pseudoquery.storage import incoming
from pseudoquery.storage.segments import segment_path
from pseudoquery.storage.store import folder_store
from tests.support.collection import DOCUMENTS, WORDS

QUERIES = ["who was the king of the city", "bird song", "the old house by the river?"]


@pytest.fixture
def index(tmp_path: Path, tiny_model: MultiVectorEncoder) -> Index:
    made = Index.create(tmp_path / "index", model=tiny_model)
    made.add(DOCUMENTS)
    return made


@pytest.fixture
def empty(tmp_path: Path, tiny_model: MultiVectorEncoder) -> Index:
    return Index.create(tmp_path / "empty", model=tiny_model)


def ids(answer: Answer) -> list[str]:
    return [hit.id for hit in answer.hits]


def results(index: Index, **how: Any) -> list[list[tuple[str, float]]]:
    answers = index.search_many(QUERIES, 100, **how)
    return [[(hit.id, hit.score) for hit in answer.hits] for answer in answers]


# --- adding and deleting


def test_add_counts_what_it_did(empty: Index) -> None:
    assert empty.add(DOCUMENTS[:3]) == Added(added=3)
    changed = replace(DOCUMENTS[1], text="changed")
    assert empty.add([DOCUMENTS[0], changed, DOCUMENTS[3]]) == Added(1, 1, 1)
    assert empty.add([changed]) == Added(unchanged=1)
    assert empty.add([]) == Added()
    assert len(empty) == 4
    assert empty.get("id 1") == changed
    assert Added(1, 2, 3, 1).total == 6


@pytest.mark.parametrize("batch", [1, 2, 256])
def test_counts_do_not_depend_on_the_batches(
    empty: Index, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(incoming, "BATCH_DOCUMENTS", batch)
    one, other = Document("a", "first"), Document("a", "second")
    assert empty.add([one, one, other, DOCUMENTS[0], other]) == Added(2, 1, 2)
    assert empty.get("a") == other
    assert len(empty) == 2


def test_unchanged_documents_are_not_encoded_again(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(documents: Iterable[Document]) -> None:
        raise AssertionError("nothing should be encoded")

    monkeypatch.setattr(index, "encode", refuse)
    before = results(index)
    moved = [replace(one, origin="elsewhere") for one in DOCUMENTS]
    assert index.add(moved) == Added(unchanged=30)
    assert results(index) == before


@pytest.mark.parametrize("field", ["text", "title", "metadata"])
def test_any_change_is_an_update(index: Index, field: str) -> None:
    changes: dict[str, Any] = {field: {"n": -1} if field == "metadata" else "moon river"}
    changed = replace(DOCUMENTS[5], **changes)
    assert index.add([changed]) == Added(updated=1)
    assert index.get("id 5") == changed
    assert len(index) == 30
    (hit,) = index.search("moon", where={"id": "id 5"}).hits
    assert (hit.text, hit.title, hit.metadata) == (changed.text, changed.title, changed.metadata)


def test_documents_are_committed_batch_by_batch(
    empty: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "BATCH_DOCUMENTS", 4)
    seen = [len(empty) for _ in empty.add_in_batches(DOCUMENTS[:10])]
    assert seen == [4, 8, 10]
    monkeypatch.setattr(incoming, "BATCH_CHARACTERS", 30)
    texts = [Document(str(number), "moon " * 5) for number in range(5)]
    assert [one.added for one in empty.add_in_batches(texts)] == [2, 2, 1]


def test_a_bad_document_is_refused_and_the_rest_is_safe(
    empty: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "BATCH_DOCUMENTS", 2)
    bad = Document("bad", "a lone \udc80 surrogate")
    with pytest.raises(CorpusError, match="lone surrogate"):
        empty.add([*DOCUMENTS[:4], bad, DOCUMENTS[5]])
    assert [one.id for one in empty.documents()] == ["id 0", "id 1", "id 2", "id 3"]
    assert empty.verify() == []


def test_delete(index: Index) -> None:
    assert index.delete(["id 3", "nothing", "id 4"]) == ["id 3", "id 4"]
    assert index.delete("id 5") == ["id 5"], "a string is one id, not many letters"
    assert len(index) == 27
    assert index.get("id 3") is None
    for mode in ("dense", "bm25", "hybrid"):
        for found in results(index, mode=mode):
            assert not {"id 3", "id 4", "id 5"} & {id_ for id_, _ in found}
    assert index.info()["deleted_awaiting_compaction"] == 3
    index.compact()
    assert index.info()["deleted_awaiting_compaction"] == 0


def test_compaction_changes_no_result(index: Index) -> None:
    index.delete([f"id {number}" for number in range(0, 30, 4)])
    before, facts = results(index), index.info()
    index.compact()
    assert results(index) == before
    after = index.info()
    assert after["vector_bytes"] < facts["vector_bytes"]
    assert (after["vectors"], after["documents"]) == (facts["vectors"], facts["documents"])
    assert results(Index.open(index.folder, model=index.model)) == before


some_documents = st.lists(
    st.builds(
        Document,
        st.sampled_from([f"new {number}" for number in range(6)]),
        st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join),
        st.sampled_from(["", "a title", "king"]),
    ),
    max_size=8,
)


@given(rounds=st.lists(some_documents, max_size=4), compact=st.booleans())
@settings(max_examples=15)
def test_adding_then_deleting_leaves_results_as_before(
    tiny_model: MultiVectorEncoder, rounds: list[list[Document]], compact: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = Index.create(Path(folder) / "index", model=tiny_model)
        index.add(DOCUMENTS[:12])
        index.delete(["id 3"])
        modes = [{"mode": mode, "exact": True} for mode in ("dense", "bm25", "hybrid")]
        before = [results(index, **how) for how in modes]
        for added in rounds:
            index.add(added)
        given_ids = {one.id for added in rounds for one in added}
        assert set(index.delete(sorted(given_ids))) == given_ids
        if compact:
            index.compact()
        assert [results(index, **how) for how in modes] == before
        assert index.verify() == []


# --- searching


def test_search_many_equals_search(index: Index) -> None:
    for how in (
        {},
        {"exact": True},
        {"mode": "bm25"},
        {"mode": "hybrid"},
        {"where": {"n": [1, 2]}},
    ):
        many = index.search_many(QUERIES, 5, **how)
        assert [answer.query for answer in many] == QUERIES
        for query, answer in zip(QUERIES, many, strict=True):
            single = index.search(query, 5, **how)
            assert ids(single) == ids(answer)
            assert [hit.score for hit in single.hits] == pytest.approx(
                [hit.score for hit in answer.hits], rel=1e-4
            )


def test_search_many_of_none_and_of_a_string(index: Index) -> None:
    assert index.search_many([]) == []
    assert len(index.search_many("bird song")) == 1


def test_scores_fall_and_weights_add_up(index: Index) -> None:
    answer = index.search(QUERIES[0], 30)
    scores = [hit.score for hit in answer.hits]
    assert len(scores) == 30
    assert scores == sorted(scores, reverse=True)
    for hit in answer.hits:
        assert sum(hit.weights) == pytest.approx(1)
        assert 1 <= len(hit.weights) <= 4


def test_filters_come_before_scoring(index: Index) -> None:
    """With a first step this narrow, a filter after it would leave nothing."""
    worst = ids(index.search(QUERIES[0], 30))[-1]
    number = int(worst.split()[1])
    narrow = SearchSettings(recall=1)
    for mode in ("dense", "hybrid"):
        found = index.search(QUERIES[0], 1, where={"n": number}, mode=mode, settings=narrow)
        assert ids(found) == [worst]
    even = index.search(QUERIES[0], 30, where={"even": True})
    assert sorted(ids(even)) == sorted(f"id {number}" for number in range(0, 30, 2))
    assert even.certified
    complete = [hit for hit in index.search(QUERIES[0], 30).hits if hit.metadata["even"]]
    assert [(hit.id, hit.score) for hit in even.hits] == [(hit.id, hit.score) for hit in complete]
    assert ids(index.search(QUERIES[0], where={"tags": "moon"})) == [f"id {WORDS.index('moon')}"]
    assert ids(index.search(QUERIES[0], where={"n": {">": 100}})) == []


def test_exact_is_certified_and_equals_brute_force(index: Index) -> None:
    brute = index.search(QUERIES[1], 30, settings=SearchSettings(structure="flat", recall=30))
    assert brute.certified
    for structure in ("flat", "hnsw", "ivf8"):
        narrow = SearchSettings(structure=structure, recall=1)
        answer = index.search(QUERIES[1], 3, exact=True, settings=narrow)
        assert answer.certified
        assert [(hit.id, hit.score) for hit in answer.hits] == [
            (hit.id, hit.score) for hit in brute.hits[:3]
        ]
    doubtful = index.search(QUERIES[1], 3, settings=SearchSettings(structure="hnsw", recall=3))
    assert not doubtful.certified


def test_settings_of_the_first_step_change_it(index: Index) -> None:
    def candidates(**how: Any) -> int:
        settings = SearchSettings(structure="flat", **how)
        return index.search(QUERIES[0], 1, settings=settings).candidates

    assert candidates(recall=30) == 30
    assert candidates(recall=2) < 30
    assert candidates(recall_vectors=1) == 1
    assert candidates(recall_vectors=10**6) == 30


def test_hybrid_finds_by_words_and_by_meaning(index: Index) -> None:
    index.add([Document("rare", "xylophone " + "moon " * 40)])
    words = index.search("xylophone", 1, mode="bm25")
    assert ids(words) == ["rare"]
    assert words.hits[0].weights == ()
    hybrid = index.search("xylophone", 31, mode="hybrid")
    nearest = ids(index.search("xylophone", 1))
    assert ids(hybrid)[:2] == [*nearest, "rare"], "the best by meaning, and the best by words"
    ranks = index.search("xylophone", 31, mode="hybrid", settings=SearchSettings(fusion="rrf"))
    assert ids(ranks)[0] == "rare"
    assert len(hybrid.hits) == 31, "the others are found by meaning"
    depth = index.search("xylophone", 2, mode="hybrid", settings=SearchSettings(fusion_depth=2))
    assert len(depth.hits) == 2


def test_weight_moves_a_fusion_between_its_parts(index: Index) -> None:
    def order(weight: float) -> list[str]:
        how = SearchSettings(fusion="weighted", weight=weight)
        return ids(index.search("moon bird", 30, mode="hybrid", settings=how))

    dense = ids(index.search("moon bird", 30))
    words = {hit.id: hit.score for hit in index.search("moon bird", 30, mode="bm25").hits}
    above = [score for score in words.values() if score > min(words.values())]
    assert order(1.0)[:-1] == dense[:-1], "the last of a ranking gets nothing"
    assert [words.get(id_) for id_ in order(0.0)[: len(above)]] == above
    assert order(1.0) != order(0.0)


def test_the_dense_hit_comes_first_among_equals(index: Index) -> None:
    """The first of each ranking gets the same from reciprocal ranks."""
    found = None
    for query in WORDS:
        dense, words = ids(index.search(query, 30)), ids(index.search(query, 30, mode="bm25"))
        if words and dense[0] not in words and words[0] not in dense[:5]:
            found = query, dense[0], words[0]
            break
    assert found
    query, dense_first, words_first = found
    how = SearchSettings(fusion_depth=1)
    fused = index.search(query, 1, mode="hybrid", settings=how)
    assert ids(fused) == [dense_first]
    assert fused.hits[0].weights
    two = index.search(query, 2, mode="hybrid", settings=replace(how, fusion_depth=2))
    assert ids(two) == [dense_first, words_first]


def test_titles_are_used(empty: Index) -> None:
    empty.add(
        [Document("a", "the people of the town"), Document("b", "the people of the town", "moon")]
    )
    assert ids(empty.search("moon", mode="bm25")) == ["b"]
    first, second = empty.search("moon", 2).hits
    assert first.score != second.score, "the title is encoded with the text"
    empty.add([Document("c", "", "sun and fire")])
    assert "c" in ids(empty.search("sun and fire"))


def test_documents_without_vectors(empty: Index) -> None:
    blank = [Document("empty", "", metadata={"blank": True}), Document("space", " \n\t ")]
    assert empty.add(blank) == Added(added=2)
    assert empty.search("moon") == Answer("moon", (), certified=True, candidates=0)
    assert empty.search("moon", mode="hybrid", exact=True).hits == ()
    empty.add(DOCUMENTS[:3])
    assert len(empty) == 5
    facts = empty.info()
    assert (facts["documents"], facts["without_vectors"]) == (5, 2)
    answer = empty.search("moon", 10)
    assert sorted(ids(answer)) == ["id 0", "id 1", "id 2"]
    assert answer.certified
    assert [one.id for one in empty.documents({"blank": True})] == ["empty"]
    assert empty.get("space") == blank[1]
    assert empty.explain("moon", "empty").pseudo_queries == ()
    assert empty.delete(["empty", "space"]) == ["empty", "space"]
    assert empty.verify() == []


def test_an_empty_index(empty: Index) -> None:
    for mode in ("dense", "bm25", "hybrid"):
        answer = empty.search("moon", mode=mode, exact=True)
        assert (answer.hits, answer.certified) == ((), True)
    assert list(empty.documents()) == []
    assert empty.info()["documents"] == 0
    assert empty.info()["vector_bytes_per_document"] == 0


def test_long_documents_are_read_whole_unless_truncation_is_asked_for(
    tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    long = Document("long", "the king of the city " * 40 + "moon bird song")
    short = Document("short", "moon")
    whole = Index.create(tmp_path / "whole", model=tiny_model)
    cut = Index.create(tmp_path / "cut", model=tiny_model, long="truncate")
    assert whole.add([long, short]) == Added(added=2)
    assert cut.add([long, short]) == Added(added=2, cut=1)
    beginning = Document("long", "the king of the city " * 30)
    other = Index.create(tmp_path / "other", model=tiny_model, long="truncate")
    other.add([beginning, short])
    assert results(cut) == results(other), "what follows the first window plays no part"
    assert results(cut) != results(whole)
    assert Index.open(cut.folder).settings.long == "truncate"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": ""}, "the query is empty"),
        ({"query": " \n\0 "}, "the query is empty"),
        ({"query": 7}, "must be text, not int"),
        ({"query": "a \udc80"}, "lone surrogate"),
        ({"top": 0}, "top is 0"),
        ({"top": -1}, "top is -1"),
        ({"top": 2.5}, "top is 2.5"),
        ({"mode": "magic"}, "dense, bm25, hybrid"),
        ({"where": {"n": {"~": 1}}}, "the filter on 'n'"),
        ({"settings": SearchSettings(structure="tree")}, "there is no structure 'tree'"),
        ({"settings": SearchSettings(recall=0)}, "recall is 0"),
        ({"settings": SearchSettings(recall_vectors=0)}, "recall_vectors is 0"),
        ({"settings": SearchSettings(fusion_depth=0)}, "fusion_depth is 0"),
        ({"settings": SearchSettings(weight=1.5)}, "between 0 and 1"),
        ({"settings": SearchSettings(fusion="sum")}, "rrf, weighted"),  # type: ignore[arg-type]
    ],
)
def test_what_can_t_be_answered_is_refused(
    index: Index, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(QueryError, match=message):
        index.search(**{"query": "moon", **changes})


def test_any_query_that_has_text_is_answered(index: Index) -> None:
    for query in ("😀", "שלום", "a\0b", '"', "AND OR NOT", "x" * 5000, "()*:^", "moon " * 500):
        for mode in ("dense", "bm25", "hybrid"):
            answer = index.search(query, 3, mode=mode)
            assert answer.query == query
            assert len(answer.hits) == 3 or mode == "bm25"


def test_top_may_be_larger_than_the_corpus(index: Index) -> None:
    for mode in ("dense", "hybrid"):
        assert len(index.search("moon", 10**6, mode=mode).hits) == 30


# --- opening


def test_reopening_gives_the_same_results(
    tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Index.create(tmp_path / "index", model=tiny_model_path, representation=preset("paper"))
    made.add(DOCUMENTS)
    before = results(made)
    monkeypatch.chdir(tmp_path)
    again = Index.open("index")
    assert again.representation == preset("paper")
    assert results(again) == before
    assert again.add(DOCUMENTS) == Added(unchanged=30)


def test_a_model_in_memory_must_be_given_again(
    index: Index, tiny_model: MultiVectorEncoder, tiny_model_path: str
) -> None:
    again = Index.open(index.folder)
    assert len(again) == 30
    assert again.search("moon", mode="bm25").hits
    with pytest.raises(ModelError, match=r"give it to Index\.open"):
        again.search("moon")
    assert results(Index.open(index.folder, model=tiny_model)) == results(index)
    assert results(Index.open(index.folder, model=tiny_model_path)) == results(index)


def test_another_model_is_refused(
    index: Index, tiny_model_path: str, tmp_path: Path, plain_model_path: Path
) -> None:
    other = load_model(tiny_model_path, preset("recommended", k=3))
    before = results(index)
    for model in (other, _shifted(tiny_model_path, tmp_path / "other")):
        wrong = Index.open(index.folder, model=model)
        uses: list[Callable[[Index], object]] = [
            lambda one: one.search("moon"),
            lambda one: one.add([Document("new", "moon")]),
            lambda one: one.explain("moon", "id 1"),
        ]
        for use in uses:
            with pytest.raises(ModelError) as caught:
                use(wrong)
            assert "was made with another model than" in str(caught.value)
            assert "\n" not in str(caught.value)
    assert repr(str(tmp_path / "other")) in str(caught.value)
    assert results(index) == before


def _shifted(path: str, folder: Path) -> str:
    """Save the tiny model again, with one weight changed."""
    model = load_model(path, preset("recommended", k=4))
    next(model.parameters()).data[10, 0] += 0.5
    model.save_pretrained(str(folder), create_model_card=False)
    return str(folder)


def test_a_representation_for_a_model_in_memory_is_not_ignored(
    tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    with pytest.raises(ModelError, match="load_model"):
        Index.create(tmp_path / "index", model=tiny_model, representation=preset("paper"))
    assert not (tmp_path / "index").exists()


def test_info(index: Index, tiny_model: MultiVectorEncoder) -> None:
    facts = index.info()
    sizes = [path.stat().st_size for path in index.folder.rglob("*") if path.is_file()]
    assert facts["documents"] == 30
    assert 30 < facts["vectors"] <= 120
    assert facts["segments"] == 1
    assert facts["bytes"] == sum(sizes)
    assert facts["vector_bytes"] == segment_path(index.folder, 1).stat().st_size
    assert facts["vector_bytes_per_document"] == round(facts["vectors"] * 32 * 2 / 30)
    assert facts["representation"] == preset("recommended", k=4).settings()
    assert facts["dimension"] == 32


def test_verify_and_repair_restore_the_results(index: Index) -> None:
    index.add([Document(f"more {number}", WORDS[number]) for number in range(10)])
    index.delete(["id 7", "more 3"])
    before = {mode: results(index, mode=mode) for mode in ("dense", "bm25", "hybrid")}
    for number in (1, 2):
        path = segment_path(index.folder, number)
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    assert len(index.verify()) == 2
    assert index.repair() == 38
    assert index.verify() == []
    for opened in (index, Index.open(index.folder, model=index.model)):
        for mode, found in before.items():
            assert results(opened, mode=mode) == found


# --- at the same time


def test_searching_while_another_writes(index: Index) -> None:
    """Threads share an index and a structure while documents come and go; nothing tears."""
    stable = {one.id for one in DOCUMENTS}
    writer = Index.open(index.folder, model=index.model)
    done = threading.Event()
    wrong: list[str] = []
    searches: list[int] = []

    def search(structure: str) -> None:
        while not done.is_set():
            try:
                answer = index.search(
                    "moon", 100, exact=True, settings=SearchSettings(structure=structure)
                )
                index.info()
                found = ids(answer)
                searches.append(len(found))
                if not stable <= set(found) or len(set(found)) != len(found):
                    wrong.append(str(found))
                wrong.extend(
                    f"{hit.id} has the text of another"
                    for hit in answer.hits
                    if hit.id.startswith("new") and hit.text != f"moon {hit.id}"
                )
            except Exception as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=search, args=[kind]) for kind in ("flat", "flat", "hnsw")]
    for thread in threads:
        thread.start()
    rounds = 0
    while (rounds < 12 or len(set(searches)) < 3) and not wrong:
        writer.add([Document(f"new {rounds}-{n}", f"moon new {rounds}-{n}") for n in range(3)])
        if rounds % 3 == 2:
            writer.delete([f"new {rounds - 1}-{n}" for n in range(3)])
        if rounds % 5 == 4:
            writer.compact()
        rounds += 1
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert index.verify() == []


def test_a_ranking_knows_the_ids_of_its_own_state(index: Index) -> None:
    """Ids are kept from one ranking to the next, but not past a change."""
    other = Index.open(index.folder, model=index.model)

    def best(opened: Index) -> list[str]:
        return [id_ for id_, _ in opened.rank_many(["king moon"], 100, exact=True)[0]]

    before = best(index)
    assert len(before) == len(index) == 30
    assert best(other) == before
    index.add([Document("new", "king moon")])
    assert "new" in best(index)
    assert best(other) == best(index)
    index.delete(["new", before[0]])
    assert set(best(other)) == set(before[1:])


def test_a_second_writer_is_told_to_wait(index: Index) -> None:
    adding = index.add_in_batches([Document("new", "moon")])
    assert isinstance(adding, Generator)
    assert next(adding) == Added(added=1)
    with pytest.raises(IndexFolderError, match="another process is writing"):
        index.delete(["id 1"])
    assert len(index) == 31, "readers go on"
    adding.close()
    assert index.delete(["id 1"]) == ["id 1"]


def test_vectors_do_not_depend_on_the_batch(
    tmp_path: Path, tiny_model: MultiVectorEncoder, index: Index
) -> None:
    one_by_one = Index.create(tmp_path / "single", model=tiny_model)
    for document in DOCUMENTS:
        one_by_one.add([document])
    with (
        folder_store(index.store).snapshot() as together,
        folder_store(one_by_one.store).snapshot() as single,
    ):
        assert np.array_equal(together.view.offsets, single.view.offsets)
        count = together.view.vector_count
        np.testing.assert_allclose(
            together.view.vectors(0, count), single.view.vectors(0, count), atol=2e-3
        )


def test_vectors_made_elsewhere(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    index = Index.create(tmp_path / "index", model=tiny_model)
    vectors, _ = index.encode(DOCUMENTS[:4])
    index.add_vectors(DOCUMENTS[:4], vectors)
    other = Index.create(tmp_path / "other", model=tiny_model)
    other.add(DOCUMENTS[:4])
    assert index.rank_many(["river city"], 4) == other.rank_many(["river city"], 4)
    for documents, made, message in (
        (DOCUMENTS[4:6], vectors[:1], "vectors of 1 for 2 documents"),
        (DOCUMENTS[4:5], [vectors[0].reshape(-1, 16)], r"should be \(vectors, 32\)"),
        (DOCUMENTS[4:5], [vectors[0][0]], "have the shape"),
        ([DOCUMENTS[4]] * 2, vectors[:2], "the same id"),
    ):
        with pytest.raises(PseudoqueryError, match=message):
            index.add_vectors(documents, made)
    assert len(index) == 4


def test_a_precision_is_kept_and_used(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    full = Index.create(tmp_path / "full", model=tiny_model)
    half = Index.create(tmp_path / "half", model=tiny_model, precision="bfloat16")
    assert full.settings.fingerprint == half.settings.fingerprint
    reopened = Index.open(tmp_path / "half", model=tiny_model)
    assert reopened.settings.precision == "bfloat16"
    assert reopened.info()["precision"] == "bfloat16"
    for index in (full, half):
        index.add(DOCUMENTS)
    exactly, nearly = (index.search(QUERIES[0], 30, exact=True) for index in (full, reopened))
    one, other = ({hit.id: hit.score for hit in answer.hits} for answer in (exactly, nearly))
    assert one != other, "it makes a difference"
    assert one == pytest.approx(other, abs=0.1), "and a small one"
    with pytest.raises(ModelError, match="precision is 'int4'; choose one of float32, bfloat16"):
        Index.create(tmp_path / "none", model=tiny_model, precision="int4")  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("exact", [False, True])
def test_vectors_in_8_bits_are_searched(
    tmp_path: Path, tiny_model: MultiVectorEncoder, exact: bool
) -> None:
    eighth = Index.create(tmp_path / "int8", model=tiny_model, vector_type="int8")
    full = Index.create(tmp_path / "float32", model=tiny_model, vector_type="float32")
    for index in (eighth, full):
        index.add(DOCUMENTS)
        index.delete([DOCUMENTS[3].id])
        index.compact()
        assert index.verify() == []
    assert eighth.info()["vector_bytes_per_document"] < full.info()["vector_bytes_per_document"] / 3
    ours = eighth.search(QUERIES[0], 5, exact=exact, settings=SearchSettings(structure="hnsw"))
    theirs = full.search(QUERIES[0], 5, exact=exact)
    assert ours.certified == exact or ours.candidates == 29
    assert {hit.id: hit.score for hit in ours.hits} == pytest.approx(
        {hit.id: hit.score for hit in theirs.hits}, abs=0.05
    )
