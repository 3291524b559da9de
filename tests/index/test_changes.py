"""Adding, replacing, deleting and compacting, one writer at a time."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.errors import (
    CorpusError,
    IndexFolderError,
)
from pseudoquery.index import Index
from pseudoquery.records import Added, Document
from pseudoquery.search.settings import SearchSettings
from pseudoquery.storage import incoming
from tests.support.answers import ids, results
from tests.support.collection import DOCUMENTS, WORDS


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
    first, second = Document("a", "first"), Document("a", "second")
    assert empty.add([first, first, second, DOCUMENTS[0], second]) == Added(2, 1, 2)
    assert empty.get("a") == second
    assert len(empty) == 2


def test_unchanged_documents_are_not_encoded_again(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(documents: Iterable[Document]) -> None:
        raise AssertionError("nothing should be encoded")

    monkeypatch.setattr(index, "encode", refuse)
    before = results(index)
    moved = [replace(document, origin="elsewhere") for document in DOCUMENTS]
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
    assert [batch.added for batch in empty.add_in_batches(texts)] == [2, 2, 1]


def test_a_bad_document_is_refused_and_the_rest_is_safe(
    empty: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "BATCH_DOCUMENTS", 2)
    bad = Document("bad", "a lone \udc80 surrogate")
    with pytest.raises(CorpusError, match="lone surrogate"):
        empty.add([*DOCUMENTS[:4], bad, DOCUMENTS[5]])
    assert [document.id for document in empty.documents()] == ["id 0", "id 1", "id 2", "id 3"]
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
        given_ids = {document.id for added in rounds for document in added}
        assert set(index.delete(sorted(given_ids))) == given_ids
        if compact:
            index.compact()
        assert [results(index, **how) for how in modes] == before
        assert index.verify() == []


def test_searching_while_another_writes(index: Index) -> None:
    """Threads share an index and a structure while documents come and go; nothing tears."""
    stable = {document.id for document in DOCUMENTS}
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
