"""An index searched for all queries of a collection, and the figures of its rankings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.cli.terminal import count_lines
from pseudoquery.corpus.datasets import Dataset, load_dataset
from pseudoquery.errors import ModelError, QueryError
from pseudoquery.evaluation import evaluate as trial
from pseudoquery.evaluation.evaluate import SearchPlan, compute_figures, index_dataset, search_all
from pseudoquery.evaluation.measures import MEASURES, average, evaluate
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.records import Document, Qrel, Query
from pseudoquery.search.settings import SearchSettings
from pseudoquery.storage.snapshot import FolderSnapshot

WORDS = ["river", "city", "king", "queen", "war", "peace", "music", "song", "book", "water", "fire"]
TEXTS = {
    f"d{number}": " ".join(WORDS[(number * step) % 11] for step in range(1, 8)) + f" {number}"
    for number in range(20)
}
QUERIES = [Query(f"q{number}", f"the {WORDS[number]} of {WORDS[-number]}") for number in range(7)]
QRELS = [Qrel(f"q{number}", f"d{(3 * number) % 20}", 1) for number in range(7)]
"""Of no sense to a random model, so that the figures are neither 0 nor 1."""


def dataset(queries: Iterable[Query] = QUERIES, qrels: Iterable[Qrel] = QRELS) -> Dataset:
    return Dataset(
        "small",
        "",
        lambda: (Document(id_, text) for id_, text in TEXTS.items()),
        tuple(queries),
        tuple(qrels),
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_model_path: str) -> Index:
    folder = tmp_path_factory.mktemp("trial") / "index"
    batches = list(index_dataset(dataset(), folder, model=tiny_model_path))
    assert sum(batch.added for batch in batches) == 20
    return Index.open(folder)


def nothing(more: int) -> None:
    """Show no progress."""


def test_an_index_is_made_with_its_settings_and_finished(
    tmp_path: Path, tiny_model_path: str
) -> None:
    folder = tmp_path / "index"
    settings = {"model": tiny_model_path, "representation": preset("paper", k=2)}
    first = Dataset("part", "", lambda: (Document("d0", TEXTS["d0"]) for _ in "x"), (), ())
    assert [batch.added for batch in index_dataset(first, folder, **settings)] == [1]
    assert Index.open(folder).representation == preset("paper", k=2)
    (batch,) = index_dataset(dataset(), folder, **settings)
    assert (batch.added, batch.unchanged) == (19, 1)
    assert [document.id for document in Index.open(folder).documents()] == list(TEXTS)


def test_every_question_is_asked(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    together = search_all(index, dataset(), SearchPlan(), steps.append)
    assert steps == [7]
    rankings = index.rank_many([query.text for query in QUERIES], 1000)
    assert together == dict(zip((query.id for query in QUERIES), rankings, strict=True))
    assert all(len(ranking) == 20 for ranking in together.values())
    monkeypatch.setattr(trial, "QUERIES_AT_ONCE", 3)
    steps.clear()
    assert search_all(index, dataset(), SearchPlan(), steps.append).keys() == together.keys()
    assert steps == [3, 3, 1]
    assert search_all(index, dataset((), ()), SearchPlan(), steps.append) == {}


def test_ids_are_read_once(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    real = FolderSnapshot._read_ids

    def counted(snapshot: FolderSnapshot) -> dict[int, str]:
        reads.append(1)
        return real(snapshot)

    monkeypatch.setattr(FolderSnapshot, "_read_ids", counted)
    monkeypatch.setattr(trial, "QUERIES_AT_ONCE", 2)
    search_all(Index.open(index.folder), dataset(), SearchPlan(), nothing)
    assert reads == [1]


def test_how_it_is_asked_changes_the_run(index: Index) -> None:
    by_vectors = SearchSettings(rank_by="vectors")
    narrow = SearchSettings(recall_vectors=1, rank_by="vectors")

    def runs(ask: SearchPlan) -> dict[str, Any]:
        return dict(search_all(index, dataset(), ask, nothing))

    plain = runs(SearchPlan(5, settings=by_vectors))
    assert {len(ranking) for ranking in plain.values()} == {5}
    assert {len(ranking) for ranking in runs(SearchPlan(2)).values()} == {2}
    different = [
        plain,
        runs(SearchPlan(5, "bm25")),
        runs(SearchPlan(5, "hybrid")),
        runs(SearchPlan(5, settings=narrow)),
        runs(SearchPlan(5)),
    ]
    assert all(one != other for one in different for other in different if one is not other)
    assert runs(SearchPlan(5, exact=True, settings=narrow)) == plain


def test_figures_by_judgement(index: Index) -> None:
    run = search_all(index, dataset(), SearchPlan(), nothing)
    figures = compute_figures(run, dataset())
    assert list(figures) == list(MEASURES)
    assert average(figures) == evaluate(run, QRELS)
    assert 0 < average(figures)["RR@10"] < 1
    assert list(compute_figures(run, dataset(), ["P@3"])) == ["P@3"]
    within = ["RR@10", "nDCG@10", "Success@1", "Success@5", "Success@20"]
    assert list(compute_figures(run, dataset(), MEASURES, 20)) == within


def test_figures_by_answer() -> None:
    queries = [
        Query("first", "?", (TEXTS["d1"],)),
        Query("sixth", "?", ("nowhere", TEXTS["d2"])),
        Query("unjudged", "?", (TEXTS["d3"],)),
        Query("missing", "?", (TEXTS["d4"],)),
        Query("without", "?"),
    ]
    others = [f"d{number}" for number in range(10, 15)]
    run = {
        "first": [("d1", 1.0)],
        "sixth": [(id_, 0.0) for id_ in (*others, "d2")],
        "unjudged": [("d3", 1.0)],
        "without": [("of another collection", 1.0)],
        "not asked": [("of another collection", 1.0)],
    }
    judged = [Qrel(name, "d1", 1) for name in ("first", "sixth", "missing", "without")]
    figures = compute_figures(run, dataset(queries, judged), ["RR@10"])
    assert list(figures) == ["RR@10", "answer@1", "answer@5", "answer@20", "answer@100"]
    assert average(figures)["RR@10"] == 1 / 4
    by_hand = {"first": 1.0, "sixth": 0.0, "unjudged": 1.0, "missing": 0.0}
    assert figures["answer@1"] == figures["answer@5"] == by_hand
    assert figures["answer@20"] == figures["answer@100"] == {**by_hand, "sixth": 1.0}


def test_figures_by_answer_alone() -> None:
    """Where nothing is judged, measures by judgement would all be zero; they are left out."""
    queries = [Query("right", "?", (TEXTS["d1"],)), Query("wrong", "?", ("nowhere",))]
    run = {"right": [("d1", 1.0)], "wrong": [("d1", 1.0)]}
    assert list(compute_figures(run, dataset(queries, ()), depth=19)) == ["answer@1", "answer@5"]
    figures = compute_figures(run, dataset(queries, ()))
    assert list(figures) == ["answer@1", "answer@5", "answer@20", "answer@100"]
    assert set(average(figures).values()) == {0.5}
    assert compute_figures(run, dataset([Query("right", "?")], ())) == {}


def test_the_title_is_a_part_of_the_text() -> None:
    titled = Dataset(
        "titled",
        "",
        lambda: iter([Document("d", "It flows.", "The Nile")]),
        (Query("q", "?", ("nile",)),),
        (),
    )
    assert compute_figures({"q": [("d", 1.0)]}, titled)["answer@1"] == {"q": 1.0}


def test_a_document_that_the_collection_has_not() -> None:
    queries = [Query("q", "?", ("king",))]
    run = {"q": [("d1", 2.0), ("x", 1.0), ("b", 0.5)]}
    with pytest.raises(
        QueryError, match=r"documents that small does not have: 2 in all, the first is 'b'\. .*\.$"
    ):
        compute_figures(run, dataset(queries, []))
    deep = {"q": [(f"d{number % 20}", 0.0) for number in range(100)] + [("x", -1.0)]}
    assert compute_figures(deep, dataset(queries, []))["answer@100"] == {"q": 1.0}, (
        "too deep to matter"
    )


@pytest.mark.parametrize(
    "name",
    [
        *("foo", "P@0", "nDCG@0", "AP(rel=0)@5", "nDCG(cutoff=0)", "alpha_nDCG@10", "RBP"),
        *("nDCG@99999999999999999999", "P(rel=99999999999999999999)@5"),
        "ERR@20",  # a program in Perl would compute it
    ],
)
def test_a_measure_that_cannot_be_computed(name: str) -> None:
    """Some of these would end the whole process, inside trec_eval."""
    with pytest.raises(QueryError, match=r"there is no measure .*\.$"):
        compute_figures({"q0": [("d0", 1.0)]}, dataset(), [name])


def test_the_model_of_an_index_must_be_there(
    tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    list(index_dataset(dataset(), tmp_path / "index", model=tiny_model))
    with pytest.raises(ModelError, match="in memory"):
        search_all(Index.open(tmp_path / "index"), dataset(), SearchPlan(), nothing)


def test_a_folder_on_disk(tmp_path: Path, index: Index) -> None:
    (tmp_path / "qrels").mkdir()
    for name, rows in {
        "corpus": [{"_id": id_, "text": text} for id_, text in TEXTS.items()],
        "queries": [{"_id": query.id, "text": query.text} for query in QUERIES],
    }.items():
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    (tmp_path / "qrels" / "dev.tsv").write_text("".join(f"{q} 0 {d} {r}\n" for q, d, r in QRELS))
    loaded = load_dataset(str(tmp_path), "dev")
    run = search_all(index, loaded, SearchPlan(), nothing)
    assert compute_figures(run, loaded) == compute_figures(
        search_all(index, dataset(), SearchPlan(), nothing), dataset()
    )


def test_only_files_with_a_record_a_line_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text("{}\n{}\n")
    assert count_lines(str(tmp_path)) == count_lines("corpus.jsonl") == count_lines(".") == 2
    assert count_lines("") is None, "a collection that is in no file is not the current folder's"
    assert count_lines("-") is None
    assert count_lines(str(tmp_path / "missing.jsonl")) is None
