"""Opening an index again: its model, its settings, its facts, its damage, its vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.model import load_model
from pseudoquery.errors import (
    ModelError,
    PseudoqueryError,
)
from pseudoquery.index import Index
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.presets import preset
from pseudoquery.records import Added, Document
from pseudoquery.search.settings import SearchSettings
from pseudoquery.storage.segments import segment_path
from pseudoquery.storage.store import folder_store
from tests.support.answers import QUERIES, results
from tests.support.collection import DOCUMENTS, WORDS


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
            lambda opened: opened.search("moon"),
            lambda opened: opened.add([Document("new", "moon")]),
            lambda opened: opened.explain("moon", "id 1"),
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
    segment = segment_path(index.folder, 1).stat().st_size
    assert facts["vector_bytes"] + facts["token_bytes"] == segment
    assert facts["vector_bytes"] > facts["vectors"] * 32 * 2
    tokens = sum(len(encoded.owners) for encoded in index.encode(DOCUMENTS))
    assert facts["tokens_stored"] == tokens
    assert facts["token_bytes"] > tokens * 32 / 8, "codes of 32 bits, and where tokens stand"
    assert facts["token_bytes_per_document"] == round(facts["token_bytes"] / 30)
    assert facts["tokens"] == "signs"
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
    encoded = index.encode(DOCUMENTS[:4])
    index.add_vectors(DOCUMENTS[:4], encoded)
    other = Index.create(tmp_path / "other", model=tiny_model)
    other.add(DOCUMENTS[:4])
    assert index.rank_many(["river city"], 4) == other.rank_many(["river city"], 4)

    def reshaped(*shape: int) -> DocumentVectors:
        return replace(encoded[0], vectors=encoded[0].vectors.reshape(shape))

    wrong: list[tuple[list[Document], Any, str]] = [
        (DOCUMENTS[4:6], encoded[:1], "vectors of 1 for 2 documents"),
        (DOCUMENTS[4:5], [reshaped(-1, 16)], r"should be \(vectors, 32\)"),
        (DOCUMENTS[4:5], [reshaped(-1)], "have the shape"),
        (DOCUMENTS[4:5], [encoded[0].vectors], "are not codes of the type 'signs'"),
        (DOCUMENTS[4:5], [replace(encoded[0], codes=encoded[0].codes[1:])], "are not codes of"),
        (DOCUMENTS[4:5], [replace(encoded[0], owners=encoded[0].owners[1:])], "are not codes of"),
        (DOCUMENTS[4:5], [replace(encoded[0], spans=encoded[0].spans[1:])], "are not codes of"),
        ([DOCUMENTS[4]] * 2, encoded[:2], "the same id"),
    ]
    for documents, made, message in wrong:
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
    full_scores, half_scores = (
        {hit.id: hit.score for hit in answer.hits} for answer in (exactly, nearly)
    )
    assert full_scores != half_scores, "it makes a difference"
    assert full_scores == pytest.approx(half_scores, abs=0.1), "and a small one"
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
