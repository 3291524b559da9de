"""`pseudoquery evaluate`: an index, a model or a run in, figures out."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.corpus.documents import read_qrels
from pseudoquery.encoding.model import load_model
from pseudoquery.evaluation.evaluate import compute_figures
from pseudoquery.evaluation.measures import MEASURES, average, compare_runs, evaluate
from pseudoquery.evaluation.trec_runs import read_run
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from tests.support.command import Run as Command
from tests.support.command import check_refused, write
from tests.support.evaluation import ANSWERS, TEXTS, Result


def test_an_index(result: Callable[..., Result], collection: Path, collection_index: Path) -> None:
    evaluation = result("--index", collection_index)
    assert (evaluation.report["dataset"], evaluation.report["queries"]) == ("small", 5)
    assert "compared" not in evaluation.report
    assert list(evaluation.figures) == [*MEASURES, *ANSWERS]
    assert all(len(ranking) == 20 for ranking in evaluation.run.values())
    queries = load_dataset(str(collection), "dev").queries
    rankings = Index.open(collection_index).rank_many([query.text for query in queries])
    assert evaluation.run == dict(zip((query.id for query in queries), rankings, strict=True))
    by_judgement = evaluate(evaluation.run, read_qrels(collection / "qrels" / "dev.tsv"))
    assert {name: evaluation.figures[name] for name in MEASURES} == by_judgement
    assert 0 < by_judgement["RR@10"] < 1
    assert evaluation.figures["answer@20"] == 1.0 > evaluation.figures["answer@1"]


def test_a_saved_run_has_the_same_figures(
    result: Callable[..., Result], collection_index: Path, tmp_path: Path
) -> None:
    evaluation = result("--index", collection_index)
    assert result("--run", tmp_path / "0.trec") == evaluation
    words = result("--index", collection_index, "--mode", "bm25")
    assert result("--run", tmp_path / "2.trec") == words != evaluation


def test_words_need_no_index(
    result: Callable[..., Result],
    run: Command,
    collection: Path,
    collection_index: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_index = result("--index", collection_index, "--mode", "bm25")
    monkeypatch.setattr("pseudoquery.index.Index.create", lambda *_, **__: 1 / 0)
    assert result("--mode", "bm25") == with_index
    few = result("--mode", "bm25", "--top", 3).run
    assert few == {query: ranking[:3] for query, ranking in with_index.run.items()}
    useless = run("evaluate", collection, "--split", "dev", "--mode", "bm25", "--k", 4)
    check_refused(useless, "--k has no effect with --mode bm25;")


def test_a_query_missing_from_a_run_counts_as_zero(
    result: Callable[..., Result], tmp_path: Path
) -> None:
    # q0's only right document is d0, and "7" is in d7 alone; the other four queries are left out.
    file = write(tmp_path / "one.trec", "q0 Q0 d0 1 2 x", "q0 Q0 d7 2 1 x", "other Q0 d1 1 1 x")
    evaluation = result("--run", file)
    assert evaluation.report["queries"] == 5
    assert evaluation.figures["RR@10"] == evaluation.figures["Success@1"] == 1 / 5
    assert (evaluation.figures["answer@1"], evaluation.figures["answer@5"]) == (0.0, 1 / 5)


def test_the_split_decides(
    result: Callable[..., Result], collection_index: Path, collection: Path
) -> None:
    evaluation = result("--index", collection_index, "--split", "test")
    assert list(evaluation.run) == ["q5", "q6", "q7", "q8", "q9"]
    assert list(evaluation.figures) == list(MEASURES), "no answers, no accuracy by answers"
    assert evaluation.figures == evaluate(
        evaluation.run, read_qrels(collection / "qrels" / "test.tsv")
    )


def test_a_model(
    result: Callable[..., Result], collection_index: Path, tiny_model_path: str
) -> None:
    evaluation = result("--model", tiny_model_path)
    assert evaluation == result("--index", collection_index), (
        "an index that was made for this is no other"
    )
    two = result("--model", tiny_model_path, "--k", 2)
    single = result("--model", tiny_model_path, "--preset", "single-vector")
    runs = [evaluation.run, two.run, single.run]
    assert all(first != second for first, second in combinations(runs, 2))
    assert two == result("--model", tiny_model_path, "--k", 2, "--preset", "recommended")
    assert evaluation == result("--model", tiny_model_path, "--preset", "recommended")


def test_a_model_keeps_its_own_representation(
    result: Callable[..., Result], tiny_model_path: str, tmp_path: Path
) -> None:
    trained = load_model(tiny_model_path, preset("single-vector"), device="cpu")
    trained.save_pretrained(str(tmp_path / "trained"), create_model_card=False)
    evaluation = result("--model", tmp_path / "trained")
    assert evaluation == result("--model", tiny_model_path, "--preset", "single-vector")
    other = result("--model", tmp_path / "trained", "--preset", "recommended")
    assert other == result("--model", tiny_model_path)
    assert other.run != evaluation.run


def test_the_default_model(
    result: Callable[..., Result], tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []

    def load(name: object, representation: object, precision: object) -> Any:
        names.append(name)
        return load_model(tiny_model_path)

    monkeypatch.setattr("pseudoquery.encoding.index_model.load_or_take", load)
    result()
    assert names[0] == "default"


def test_nothing_is_left_behind(
    run: Command,
    collection: Path,
    tiny_model_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pseudoquery.evaluation import evaluate as trial

    made: list[Path] = []
    real = trial.index_dataset

    def spied(dataset: Any, folder: Path, **settings: Any) -> Any:
        made.append(folder)
        yield from real(dataset, folder, **settings)
        assert (folder / "index.sqlite").is_file()

    monkeypatch.setattr(trial, "index_dataset", spied)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = (collection, "--split", "dev", "--model", tiny_model_path)
    before = sorted(collection.rglob("*"))
    assert run("evaluate", *options).code == 0
    with monkeypatch.context() as broken:
        broken.setattr("pseudoquery.index.Index.rank_many", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run("evaluate", *options)
    assert len(made) == 2
    assert all(tmp_path in folder.parents for folder in made)
    assert list(tmp_path.iterdir()) == []
    assert sorted(collection.rglob("*")) == before


def test_what_was_cut_is_said(
    run: Command, collection: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    write(folder / "corpus.jsonl", {"_id": "d", "text": "king " * 200}, {"_id": "e", "text": "sun"})
    write(folder / "queries.jsonl", {"_id": "q", "text": "king"})
    write(folder / "qrels" / "dev.tsv", "q 0 d 1")
    options = (folder, "--split", "dev", "--model", tiny_model_path, "--json")
    assert run("evaluate", *options).err == ""
    for cutting in (("--long", "truncate"), ("--preset", "paper-passage")):
        ran = run("evaluate", *options, *cutting)
        assert ran.json["figures"]["R@1000"] == 1.0
        assert ran.err == (
            "Encoded only the beginning of 1 long document; "
            "--long windows encodes whole documents.\n"
        )


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    """A DPR folder whose test questions have answers and no judged passages."""
    folder = tmp_path / "dpr"
    folder.mkdir()
    passages = [f"{number}\t{text}\ttitle" for number, text in enumerate(TEXTS)]
    write(folder / "psgs_w100.tsv", "id\ttext\ttitle", *passages)
    write(folder / "nq-test.qa.csv", "the king?\t['7', '8']", "the moon?\t['nowhere']")
    return folder


def test_answers_without_judgements(
    run: Command, answered: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    options = (answered, "--split", "test")
    file = write(tmp_path / "run.trec", "0 Q0 1 1 3 x", "0 Q0 7 2 2 x", "1 Q0 2 1 1 x")
    ran = run("evaluate", *options, "--run", file, "--json")
    assert ran.json["queries"] == 2
    assert ran.json["figures"] == dict(zip(ANSWERS, (0.0, 0.5, 0.5, 0.5), strict=True))
    ran = run("evaluate", *options, "--run", file)
    assert "RR@10" not in ran.out
    assert ran.out.splitlines()[-1] == (
        "The collection has no judgements; the figures only count answer strings."
    )
    ran = run("evaluate", *options, "--model", tiny_model_path, "--json")
    assert ran.json["figures"]["answer@20"] == 0.5
    compared = run("evaluate", *options, "--run", file, "--compare", file, "--json").json
    assert [row["measure"] for row in compared["compared"]] == ANSWERS
    check_refused(
        run("evaluate", *options, "--run", file, "--measure", "RR@10"),
        "--measure has no effect on a collection without judgements",
    )


def test_measures(result: Callable[..., Result], collection_index: Path) -> None:
    plain = result("--index", collection_index)
    evaluation = result("--index", collection_index, "--measure", "P@1", "--measure", "RR@10")
    assert list(evaluation.figures) == ["P@1", "RR@10", *ANSWERS]
    assert evaluation.figures["P@1"] == plain.figures["Success@1"]
    assert evaluation.figures["RR@10"] == plain.figures["RR@10"]


def test_per_query(run: Command, collection: Path, collection_index: Path, tmp_path: Path) -> None:
    options = (collection, "--split", "dev", "--index", collection_index, "--json")
    target = tmp_path / "each.jsonl"
    ran = run("evaluate", *options, "--per-query", target, "--save-run", tmp_path / "run.trec")
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["query"] for row in rows] == ["q0", "q1", "q2", "q3", "q4"]
    figures = compute_figures(read_run(tmp_path / "run.trec"), load_dataset(str(collection), "dev"))
    for row in rows:
        assert row == {"query": row["query"]} | {
            name: values[row["query"]] for name, values in figures.items()
        }
    assert json.loads(ran.out)["figures"] == pytest.approx(average(figures))


def test_per_query_where_some_have_no_answers(
    run: Command, collection: Path, collection_index: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / name).write_bytes((collection / name).read_bytes())
    write(folder / "qrels" / "all.tsv", "q0 0 d0 1", "q9 0 d3 1")
    target = tmp_path / "each.jsonl"
    options = ("--split", "all", "--index", collection_index, "--measure", "RR")
    assert run("evaluate", folder, *options, "--per-query", target).code == 0
    first, second = (json.loads(line) for line in target.read_text().splitlines())
    assert list(first) == ["query", "RR", *ANSWERS]
    assert list(second) == ["query", "RR"]


def test_two_runs_compared(
    result: Callable[..., Result],
    run: Command,
    collection: Path,
    collection_index: Path,
    tmp_path: Path,
) -> None:
    other = result("--index", collection_index, "--mode", "bm25")
    evaluation = result("--index", collection_index, "--compare", tmp_path / "0.trec")
    loaded = load_dataset(str(collection), "dev")
    compared = compare_runs(
        compute_figures(evaluation.run, loaded), compute_figures(other.run, loaded)
    )
    assert [row["measure"] for row in evaluation.report["compared"]] == [*MEASURES, *ANSWERS]
    for row, one in zip(evaluation.report["compared"], compared, strict=True):
        assert (row["first"], row["second"]) == (one.first, one.second)
        assert (row["better"], row["worse"], row["p_value"]) == (one.better, one.worse, one.p_value)
        assert row["first"] == evaluation.figures[row["measure"]]
        assert row["second"] == other.figures[row["measure"]]
    assert any(row["better"] or row["worse"] for row in evaluation.report["compared"])
    same = result("--index", collection_index, "--compare", tmp_path / "1.trec")
    assert {row["p_value"] for row in same.report["compared"]} == {1.0}
    assert {row["better"] + row["worse"] for row in same.report["compared"]} == {0}


def test_for_people(
    result: Callable[..., Result],
    run: Command,
    collection: Path,
    collection_index: Path,
    tmp_path: Path,
) -> None:
    words = result("--index", collection_index, "--mode", "bm25")
    evaluation = result("--index", collection_index)
    options = (collection, "--split", "dev", "--run", tmp_path / "1.trec")
    ran = run("evaluate", *options)
    assert (ran.code, ran.err) == (0, "")
    heading, *rows = (line.split() for line in ran.out.splitlines())
    assert heading == ["measure", "%"]
    assert rows == [[name, f"{100 * value:.2f}"] for name, value in evaluation.figures.items()]
    ran = run("evaluate", *options, "--compare", tmp_path / "0.trec")
    heading, *rows = (re.split(r"  +", line.strip()) for line in ran.out.splitlines())
    assert heading == ["measure", "this run", "other run", "better", "worse", "p"]
    assert [row[:3] for row in rows] == [
        [name, f"{100 * value:.2f}", f"{100 * words.figures[name]:.2f}"]
        for name, value in evaluation.figures.items()
    ]
