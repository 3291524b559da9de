"""Models and index folders that older versions made: opened, searched, changed, verified."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery import Document, Index, SearchSettings, load_model
from pseudoquery.encoding.encode import encode_queries
from pseudoquery.method.encoded import QuestionVectors
from pseudoquery.storage.store import folder_store

MADE = Path(__file__).parent / "made_by_86a5fb7"
EXPECTED: dict[str, Any] = json.loads((MADE / "expected.json").read_text())
QUERIES: list[str] = EXPECTED["queries"]
QUERY_VECTORS = [np.array(vectors, dtype=np.float32) for vectors in EXPECTED["query_vectors"]]
SEARCHES: dict[str, dict[str, Any]] = {
    "proven": {"exact": True},
    "flat": {"settings": SearchSettings(structure="flat", recall=5)},
    "filtered": {"exact": True, "where": {"even": True}},
    "bm25": {"mode": "bm25"},
    "hybrid": {"mode": "hybrid", "settings": SearchSettings(weight=0.5)},
}
OTHER_PROCESSOR = 1e-12
"""Instruction sets round numpy's exp differently in the last digit: relatively, by at most this."""
VECTOR_ROUNDING = 1e-6
"""What the encoder of another processor or another version of torch may round differently."""


@pytest.fixture(scope="module")
def model() -> MultiVectorEncoder:
    return load_model(str(MADE / "model"), device="cpu")


@pytest.fixture(params=["float16", "int8"])
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an index folder, named by its type of vectors."""
    return Path(shutil.copytree(MADE / request.param, tmp_path / request.param))


def live_vectors(index: Index) -> NDArray[np.float32]:
    with folder_store(index.store).snapshot() as snapshot:
        return snapshot.view.vectors_of(np.flatnonzero(snapshot.view.live))


def test_the_model_makes_the_same_vectors(model: MultiVectorEncoder) -> None:
    for query, expected in zip(QUERIES, QUERY_VECTORS, strict=True):
        (vectors,) = encode_queries(model, [query])
        np.testing.assert_allclose(vectors, expected, atol=VECTOR_ROUNDING)


def test_documents_and_vectors_are_the_same(older: Path, model: MultiVectorEncoder) -> None:
    index = Index.open(older, model=model)
    expected = EXPECTED[older.name]
    assert [document.id for document in index.documents()] == expected["ids"]
    vectors = live_vectors(index)
    assert list(vectors.shape) == expected["vectors"]
    content = np.ascontiguousarray(vectors, "<f4").tobytes()
    assert hashlib.sha256(content).hexdigest() == expected["sha256"]


@pytest.mark.parametrize("name", SEARCHES)
def test_answers_are_the_same(
    older: Path, model: MultiVectorEncoder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    index = Index.open(older, model=model)
    # The questions as they were encoded then: another processor rounds the encoder differently.
    questions = [QuestionVectors(vectors, vectors[:0]) for vectors in QUERY_VECTORS]
    monkeypatch.setattr("pseudoquery.encoding.encode.encode_questions", lambda *_: questions)
    rankings = index.rank_many(QUERIES, 10, **SEARCHES[name])
    for ranking, expected in zip(rankings, EXPECTED[older.name]["answers"][name], strict=True):
        assert [id_ for id_, _ in ranking] == [id_ for id_, _ in expected]
        assert [score for _, score in ranking] == pytest.approx(
            [score for _, score in expected], rel=OTHER_PROCESSOR
        )


def test_an_older_index_is_sound_and_can_be_changed(older: Path, model: MultiVectorEncoder) -> None:
    index = Index.open(older, model=model)
    assert index.verify() == []
    index.add([Document("new", "the king of the river"), Document("id 5", "bread and wine")])
    index.delete(["id 1"])
    index.compact()
    assert index.verify() == []
    assert len(index) == len(EXPECTED[older.name]["ids"])
    assert index.search("king river", exact=True).certified
    assert index.search("bread wine", settings=SearchSettings(structure="hnsw8")).hits


def test_vectors_are_made_again_as_they_were(older: Path, model: MultiVectorEncoder) -> None:
    index = Index.open(older, model=model)
    before = live_vectors(index)
    (older / "segments" / "00000002.safetensors").unlink()
    assert index.verify()
    assert index.repair()
    np.testing.assert_allclose(live_vectors(Index.open(older, model=model)), before, atol=0.02)


def test_a_saved_model_names_its_pooling_as_ever(model: MultiVectorEncoder, tmp_path: Path) -> None:
    model.save_pretrained(str(tmp_path / "again"), create_model_card=False)
    for folder in (MADE / "model", tmp_path / "again"):
        modules = json.loads((folder / "modules.json").read_text())
        assert modules[-1]["type"] == "pseudoquery.pooling.Pooling"
