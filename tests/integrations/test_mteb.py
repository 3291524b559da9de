"""MTEB's figures are this library's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import datasets
import mteb
import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder

from pseudoquery.corpus.datasets import Dataset, load_dataset
from pseudoquery.corpus.export import JudgedSplit, export
from pseudoquery.encoding.encode import document_text, encode_queries, encode_texts
from pseudoquery.encoding.model import fingerprint, representation_of
from pseudoquery.errors import QueryError
from pseudoquery.evaluation.evaluate import SearchPlan, compute_figures, search_all
from pseudoquery.index import Index
from pseudoquery.integrations.mteb import SearchModel
from pseudoquery.method.presets import preset
from tests.support.collection import write_collection


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return load_dataset(str(write_collection(tmp_path / "collection")), "dev")


@pytest.fixture
def task(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A retrieval task whose data MTEB itself reads from an exported folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    export(dataset.documents(), tmp_path / "out", "parquet", judged=JudgedSplit(dataset, "dev"))
    return made_task(tmp_path / "out", "Retrieval")


def made_task(folder: Path, kind: str) -> Any:
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    class Things(AbsTaskRetrieval):  # type: ignore[misc]
        metadata = mteb.TaskMetadata(
            name="Things",
            description="Questions that name a thing",
            dataset={"path": str(folder), "revision": "1"},
            type=kind,
            category="t2t",
            modalities=["text"],
            eval_splits=["dev"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

    return Things()


def figures(model: SearchModel, task: Any) -> dict[str, float]:
    found = mteb.evaluate(model, task, cache=None, show_progress_bar=False)
    (scores,) = found.task_results[0].scores["dev"]
    return dict(scores)


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_the_figures_are_our_own(
    task: Any, dataset: Dataset, tmp_path: Path, tiny_model: MultiVectorEncoder, mode: Any
) -> None:
    model = SearchModel(tiny_model, mode=mode)
    assert isinstance(model, mteb.SearchProtocol)
    found = figures(model, task)
    index = Index.create(tmp_path / "index", model=tiny_model)
    index.add(dataset.documents())
    run = search_all(index, dataset, SearchPlan(mode=mode, exact=True), lambda _: None)
    own = {name: sum(each.values()) / 12 for name, each in compute_figures(run, dataset).items()}
    assert 0 < own["nDCG@10"] < 1
    assert found["ndcg_at_10"] == pytest.approx(own["nDCG@10"], abs=1e-5)  # MTEB rounds
    assert found["mrr_at_10"] == pytest.approx(own["RR@10"], abs=1e-5)
    assert found["recall_at_1"] == pytest.approx(own["Success@1"], abs=1e-5)


def test_scores_are_the_papers_and_not_maxsim(
    dataset: Dataset, tiny_model: MultiVectorEncoder, task: Any
) -> None:
    model = SearchModel(tiny_model, tokens="none")
    rows = [{"id": one.id, "text": one.text, "title": None} for one in dataset.documents()]
    model.index(rows)
    queries = datasets.Dataset.from_dict({"id": ["q", "none"], "text": ["the king", " "]})
    found = model.search(queries, task_metadata=task.metadata, top_k=12)
    scale = representation_of(tiny_model).scale
    query = torch.tensor(encode_queries(tiny_model, ["the king"])[0])
    for one in dataset.documents():
        vectors = encode_texts(tiny_model, [document_text(one)[0]], "document")[0].vectors
        dots = scale * (query @ torch.tensor(vectors).T)
        expected = float((dots.softmax(dim=1) * dots).sum())
        assert found["q"][one.id] == pytest.approx(expected, abs=0.01)  # vectors of 16 bits
        assert found["q"][one.id] < float(dots.max()) - 0.01
    assert found["none"] == {}


def test_equal_scores_keep_their_order(tiny_model: MultiVectorEncoder, task: Any) -> None:
    model = SearchModel(tiny_model)
    ids = ["b", "c", "a", "d"]
    model.index([{"id": id_, "text": "the moon"} for id_ in ids])
    queries = datasets.Dataset.from_dict({"id": ["q"], "text": ["moon"]})
    found = model.search(queries, task_metadata=task.metadata, top_k=4)["q"]
    assert list(found) == ids
    assert all(np.diff(np.array(list(found.values()), np.float32)) < 0)
    assert found["b"] == pytest.approx(found["d"], rel=1e-6)


def test_reranking_scores_only_the_given_documents(
    dataset: Dataset, tiny_model: MultiVectorEncoder, task: Any
) -> None:
    model = SearchModel(tiny_model)
    model.index([{"id": one.id, "text": one.text} for one in dataset.documents()])
    queries = datasets.Dataset.from_dict({"id": ["a", "b"], "text": ["the king", "a moon"]})
    how: dict[str, Any] = {"task_metadata": task.metadata, "top_k": 12}
    whole = model.search(queries, **how)
    given = {"a": ["d3", "d1"], "b": []}
    found = model.search(queries, top_ranked=given, **how)
    assert {id_: set(own) for id_, own in found.items()} == {"a": {"d1", "d3"}, "b": set()}
    for id_ in given["a"]:
        assert found["a"][id_] == pytest.approx(whole["a"][id_], rel=1e-5)


def test_many_queries(dataset: Dataset, tiny_model: MultiVectorEncoder, task: Any) -> None:
    model = SearchModel(tiny_model)
    model.index([{"id": one.id, "text": one.text} for one in dataset.documents()])
    ids = [str(number) for number in range(100)]
    queries = datasets.Dataset.from_dict({"id": ids, "text": [f"the {id_} king" for id_ in ids]})
    found = model.search(queries, task_metadata=task.metadata, top_k=2)
    assert list(found) == ids
    assert {len(own) for own in found.values()} == {2}


def test_results_are_kept_by_model(
    task: Any, tiny_model_path: str, tiny_model: MultiVectorEncoder
) -> None:
    first = SearchModel(tiny_model_path, preset("recommended", k=4)).mteb_model_meta
    second = SearchModel(tiny_model_path, preset("recommended", k=2)).mteb_model_meta
    assert first.name == second.name == f"pseudoquery/{Path(tiny_model_path).name}"
    assert first.revision == fingerprint(tiny_model) != second.revision
    named = SearchModel(tiny_model, name="me/mine", long="truncate").mteb_model_meta
    assert named.name == "me/mine"
    assert named.experiment_kwargs == {"long": "truncate", "mode": "dense", "tokens": None}


def test_a_folder_does_not_outlive_its_index(
    tmp_path: Path, tiny_model: MultiVectorEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = SearchModel(tiny_model)
    for _ in range(2):
        model.index([{"id": "a", "text": "moon"}])
        assert len(list(tmp_path.iterdir())) == 1
    del model
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_search(tiny_model: MultiVectorEncoder, task: Any) -> None:
    queries = datasets.Dataset.from_dict({"id": ["a"], "text": ["king"]})
    with pytest.raises(QueryError, match="call `index` with the documents first"):
        SearchModel(tiny_model).search(queries, task_metadata=task.metadata, top_k=1)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pseudoquery.integrations.mteb")
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(ImportError, match=r"pip install 'pseudoquery\[mteb\]'$"):
        __import__("pseudoquery.integrations.mteb")
