"""A filter never loses a hit in silence, whatever the structure and however few documents match."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pseudoquery.method.encoded import DocumentVectors, QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import softmax_score
from pseudoquery.records import Document
from pseudoquery.search import dense
from pseudoquery.search.rank import RankedOrdinals
from pseudoquery.search.request import check_request
from pseudoquery.search.searcher import FolderSearcher
from pseudoquery.search.settings import SearchSettings
from pseudoquery.search.structures import STRUCTURES
from pseudoquery.storage.filters import Where
from pseudoquery.storage.schema import Settings
from pseudoquery.storage.snapshot import FolderSnapshot
from pseudoquery.storage.store import FolderStore

DOCUMENTS, DIMENSION, TOP = 4000, 24, 10
REPRESENTATION = Representation(k=2, scale=10.0)


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    drawn = np.random.default_rng(0).standard_normal((DOCUMENTS, 2, DIMENSION), dtype=np.float32)
    drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
    return drawn


@pytest.fixture(scope="module")
def searcher(
    vectors: NDArray[np.float32], tmp_path_factory: pytest.TempPathFactory
) -> FolderSearcher:
    folder: Path = tmp_path_factory.mktemp("filtered") / "index"
    settings = Settings("", "", DIMENSION, {"k": 2}, vector_type="float32")
    store = FolderStore.create(folder, settings)
    documents = [Document(f"{n}", "text", metadata={"n": n}) for n in range(DOCUMENTS)]
    with store.writer() as writer:
        writer.add(documents, [DocumentVectors(each) for each in vectors])
    return FolderSearcher(store)


@pytest.fixture(scope="module")
def questions() -> list[QuestionVectors]:
    drawn = np.random.default_rng(1).standard_normal((20, 1, DIMENSION), dtype=np.float32)
    unit = drawn / np.linalg.norm(drawn, axis=2, keepdims=True)
    return [QuestionVectors(each, np.zeros((0, DIMENSION), np.float32)) for each in unit]


def rank(
    searcher: FolderSearcher, questions: Sequence[QuestionVectors], where: Where, structure: str
) -> list[RankedOrdinals]:
    settings = SearchSettings(structure=structure)
    request = check_request(["question"] * len(questions), TOP, where, False, "dense", settings)
    with searcher.rank(request, questions, REPRESENTATION) as (_, rankings):
        return rankings


def best_by_brute_force(
    vectors: NDArray[np.float32], question: QuestionVectors, matching: NDArray[np.int64]
) -> list[int]:
    dots = REPRESENTATION.scale * (vectors[matching].astype(np.float64) @ question.vectors[0])
    scores = softmax_score(torch.from_numpy(dots)).numpy()
    best: list[int] = (matching[np.argsort(-scores, kind="stable")[:TOP]] + 1).tolist()
    return best


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("few", [dense.FEW, 5])
@pytest.mark.parametrize("count", [0, 1, 10, 40, 400])
def test_a_selective_filter_loses_nothing(
    searcher: FolderSearcher,
    questions: list[QuestionVectors],
    vectors: NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
    structure: str,
    few: int,
    count: int,
) -> None:
    monkeypatch.setattr(dense, "FEW", few)
    matching = np.arange(0, DOCUMENTS, DOCUMENTS // count)[:count] if count else np.zeros(0, int)
    where = {"n": matching.tolist()}
    for question, ranking in zip(
        questions, rank(searcher, questions, where, structure), strict=True
    ):
        assert list(ranking.ordinals) == best_by_brute_force(vectors, question, matching)
        assert ranking.certified


@pytest.mark.parametrize("structure", ["hnsw", "hnsw8", "ivf", "ivf8"])
@pytest.mark.parametrize("share", [0.15, 0.3, 0.6])
def test_a_wide_filter_finds_nearly_all(
    searcher: FolderSearcher,
    questions: list[QuestionVectors],
    vectors: NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
    structure: str,
    share: float,
) -> None:
    monkeypatch.setattr(dense, "FEW", 5)
    matching = np.arange(int(share * DOCUMENTS))
    rankings = rank(searcher, questions, {"n": {"<": len(matching)}}, structure)
    found = [
        len({*ranking.ordinals} & {*best_by_brute_force(vectors, question, matching)}) / TOP
        for question, ranking in zip(questions, rankings, strict=True)
    ]
    assert np.mean(found) > 0.9
    assert all(len(ranking.ordinals) == TOP for ranking in rankings)


def test_a_filter_is_remembered_until_the_index_changes(
    questions: list[QuestionVectors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore.create(tmp_path / "index", Settings("", "", DIMENSION, {"k": 2}))
    searcher = FolderSearcher(store)
    looked_up: list[Where] = []
    look_up = FolderSnapshot.matching_ordinals

    def collect(snapshot: FolderSnapshot, where: Where) -> NDArray[np.int64]:
        looked_up.append(where)
        return look_up(snapshot, where)

    monkeypatch.setattr(FolderSnapshot, "matching_ordinals", collect)
    for number in (1, 2):
        with store.writer() as writer:
            document = Document(f"{number}", "text", metadata={"n": 1})
            writer.add([document], [DocumentVectors(np.ones((1, DIMENSION), np.float32))])
        for _ in range(3):
            (ranking,) = rank(searcher, questions[:1], {"n": 1}, "auto")
            assert len(ranking.ordinals) == number
            assert rank(searcher, questions[:1], {"n": 2}, "auto")[0].ordinals == ()
        assert looked_up == [{"n": 1}, {"n": 2}] * number
    for least in range(2 * dense.REMEMBERED_FILTERS):
        rank(searcher, questions[:1], {"n": {">": least}}, "auto")
    with store.snapshot() as snapshot:
        assert len(snapshot.view.filtered) <= dense.REMEMBERED_FILTERS
