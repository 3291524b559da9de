"""Every table and figure in its small variant, for real: trained, judged, written and drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.cli import main
from pseudoquery.encoding.encode import document_text, encode_texts
from pseudoquery.encoding.model import load_model
from pseudoquery.errors import QueryError
from pseudoquery.evaluation.evaluate import SearchPlan, compute_figures, index_dataset, search_all
from pseudoquery.evaluation.measures import average
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.research import run as module
from pseudoquery.research.rows import ROWS, TRAINED
from pseudoquery.research.run import ExperimentOptions, run_experiment
from pseudoquery.research.schedules import (
    ALL_COLLECTIONS,
    COLLECTIONS,
    FOLDS,
    SCHEDULES,
    judged_collections,
)
from pseudoquery.research.tables import EXPERIMENTS
from pseudoquery.search.fusion import Fusion
from pseudoquery.search.settings import Mode, SearchSettings
from pseudoquery.training.config import Config, check_config, load_named_dataset
from pseudoquery.training.validation import make_validation_set, validate
from tests.support.collection import write_collection


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, split in ALL_COLLECTIONS.items():
        folder = write_collection(tmp_path / "data" / name)
        if split != "train":
            (folder / "qrels" / "dev.tsv").rename(folder / "qrels" / f"{split}.tsv")
    return tmp_path / "data"


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "left-out"])
def test_the_small_variant_of_each(
    name: str,
    data: Path,
    tmp_path: Path,
    tiny_model_path: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "results"
    rows = EXPERIMENTS[name].rows if name in ("table5", "table1") else EXPERIMENTS[name].rows[:5]
    chosen = [part for row in rows for part in ("--row", row)]
    options = ["--data", str(data), "--out", str(out), "--model", tiny_model_path, *chosen]
    main(["experiment", name, "--small", *options])
    assert f"Wrote {out / name}.md" in capsys.readouterr().out
    main(["experiment", name, "--small", *options, "--seeds", "1", "--json"])
    assert len(json.loads(capsys.readouterr().out)) == 1 + len(rows)
    text = (out / f"{name}.md").read_text()
    written = json.loads((out / f"{name}.json").read_text())
    assert [result["row"] for result in written] == ["bm25", *rows]
    for row in rows:
        assert f"| {ROWS[row].label} |" in text
    for test in EXPERIMENTS[name].tests:
        assert f"## {test}\n" in text
    assert str(tmp_path) not in text
    assert (out / f"{name}.svg").read_text().count("<path") > 10


def order(data: Path, out: Path, model: str, **changes: Any) -> ExperimentOptions:
    return ExperimentOptions("table5", data, out, model, rows=("pseudo-4",), small=True, **changes)


def trained_model(out: Path) -> Path:
    (folder,) = (out / "work" / "documents-small").glob("pseudo-4-0-*")
    return folder / "model"


def texts_of(collection: Path) -> list[str]:
    return [
        document_text(document)[0]
        for document in load_named_dataset(f"{collection}:dev").documents()
    ]


def test_what_was_done_is_not_done_again(
    data: Path, tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []
    first = run_experiment(order(data, tmp_path / "out", tiny_model_path), announced.append)
    assert announced == ["pseudo queries, k=4, seed 0"]
    trained: list[int] = []

    def train(config: Config, tokenised: Any) -> Path:
        trained.append(config.seed)
        return really(config, tokenised)

    really = module.train  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "train", train)
    again = run_experiment(
        order(data, tmp_path / "out", tiny_model_path, seeds=2), announced.append
    )
    assert trained == [1], "only the new seed"
    assert announced[1:] == ["pseudo queries, k=4, seed 1"]
    assert again[:2] == first
    run = tmp_path / "out" / "runs" / "documents-small" / "pseudo-4-2e-04-0.json"
    result = json.loads(run.read_text())
    result["settings"]["epochs"] = 7.0
    run.write_text(json.dumps(result))
    assert (
        run_experiment(order(data, tmp_path / "out", tiny_model_path), announced.append)[1]
        != result
    )
    assert announced[2:] == ["pseudo queries, k=4, seed 0"], "one of other settings does not count"
    assert trained == [1], "but the model is there"
    corpus = data / "squad-documents" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("This is about", "Nothing is said of"))
    changed = run_experiment(order(data, tmp_path / "out", tiny_model_path), announced.append)
    assert trained == [1, 0], "nor does one of other data, nor its model"
    assert changed[1]["data"] != first[1]["data"]


def test_a_rate_is_tried_beside_the_rows_own(
    data: Path, tmp_path: Path, tiny_model_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--data", str(data), "--out", str(out), "--model", tiny_model_path, "--small"]
    begun = ["experiment", "table5", *options, "--row", "pseudo-4"]
    main([*begun, "--learning-rate", "5e-4"])
    assert capsys.readouterr().out == f"Wrote {out / 'rates'}.md.\n"
    assert not (out / "table5.md").exists()
    main(begun)
    tried = [line for line in (out / "rates.md").read_text().splitlines() if "k=4" in line]
    assert [line.split(" | ")[1] for line in tried] == ["**0.0002**", "0.0005"]
    results = [json.loads(path.read_text()) for path in (out / "runs").rglob("*.json")]
    assert {result["settings"]["learning_rate"] for result in results} == {2e-4, 5e-4}
    assert any("--learning-rate 0.0005" in result["made_by"]["command"] for result in results)


def test_a_report_trains_nothing(data: Path, tmp_path: Path, tiny_model_path: str) -> None:
    options = ["--data", str(data), "--out", str(tmp_path / "new"), "--model", tiny_model_path]
    main(["experiment", "table5", *options, "--small", "--report"])
    assert "| BM25 (SQLite FTS5) |" in (tmp_path / "new" / "table5.md").read_text()
    stored_only = replace(order(data, tmp_path / "out", tiny_model_path, seeds=3), report=True)
    assert [result["row"] for result in run_experiment(stored_only, lambda _: None)] == ["bm25"]
    run_experiment(order(data, tmp_path / "out", tiny_model_path), lambda _: None)
    rows = [
        (result["row"], result["seed"]) for result in run_experiment(stored_only, lambda _: None)
    ]
    assert rows == [("bm25", 0), ("pseudo-4", 0)]


def test_the_figures_are_those_of_the_model(
    data: Path, tmp_path: Path, tiny_model_path: str
) -> None:
    words, result = run_experiment(order(data, tmp_path / "out", tiny_model_path), lambda _: None)
    model = load_model(str(trained_model(tmp_path / "out")), device="cpu")
    validation_set = make_validation_set(
        model, load_named_dataset(f"{data / 'squad-documents'}:dev")
    )
    for name, value in validate(model, validation_set).items():
        assert result["figures"]["squad-documents"]["alone"][name] == pytest.approx(
            100 * value, abs=0.01
        )
    assert set(result["figures"]["squad-documents"]) == {"alone", "rrf", "weighted", "size"}
    assert result["figures"]["squad-documents"]["size"]["bytes"] == 2 * 32 * 4
    assert words["figures"]["squad-documents"]["alone"]["RR@10"] == 100.0
    assert set(result["curve"]) == {"step", "loss", "max_r", "var_r"}
    texts = texts_of(data / "squad-documents")
    vectors = sum(len(text.vectors) for text in encode_texts(model, texts, "document"))
    assert result["figures"]["squad-documents"]["size"]["vectors"] == vectors / 12
    assert str(tmp_path) not in json.dumps(result), "the result names no folder of this machine"
    assert "experiment table5 --data data --out out" in result["made_by"]["command"]
    assert {"commit", "source", "device", "torch"} <= set(result["made_by"])


def test_hybrids_and_words_agree_with_an_index(
    data: Path, tmp_path: Path, tiny_model_path: str
) -> None:
    words, result = run_experiment(order(data, tmp_path / "out", tiny_model_path), lambda _: None)
    folder = trained_model(tmp_path / "out")
    dataset = load_named_dataset(f"{data / 'squad-documents'}:dev")
    for _ in index_dataset(
        dataset, tmp_path / "index", model=str(folder), vector_type="float32", tokens="none"
    ):
        pass
    index = Index.open(tmp_path / "index")
    cases: tuple[tuple[Mode, Fusion, dict[str, float]], ...] = (
        ("bm25", "rrf", words["figures"]["squad-documents"]["alone"]),
        ("hybrid", "rrf", result["figures"]["squad-documents"]["rrf"]),
        ("hybrid", "weighted", result["figures"]["squad-documents"]["weighted"]),
    )
    for mode, fusion, figures in cases:
        settings = SearchSettings(fusion=fusion, weight=0.5)
        run = search_all(index, dataset, SearchPlan(1000, mode, True, settings), lambda _: None)
        expected = average(compute_figures(run, dataset))
        assert figures["RR@10"] == pytest.approx(100 * expected["RR@10"], abs=0.01), (mode, fusion)


def test_unknown_rows_and_experiments(data: Path, tmp_path: Path, tiny_model_path: str) -> None:
    with pytest.raises(QueryError, match="table5 has no row 'cls'; it has random-4, "):
        run_experiment(
            replace(order(data, tmp_path, tiny_model_path), rows=("cls",)), lambda _: None
        )
    with pytest.raises(QueryError, match="there is no experiment 'table9'; choose one of table1"):
        run_experiment(
            replace(order(data, tmp_path, tiny_model_path), name="table9"), lambda _: None
        )
    assert not (tmp_path / "runs").exists()


def test_every_row_is_a_valid_one_and_used() -> None:
    used = {row for experiment in EXPERIMENTS.values() for row in experiment.rows}
    assert used == set(ROWS)
    assert {row.trained_as for row in ROWS.values()} - {""} <= set(TRAINED)
    for experiment in EXPERIMENTS.values():
        assert set(experiment.paper) <= set(experiment.rows)
        judged = [
            test for schedule in experiment.schedules for test in judged_collections(schedule)
        ]
        assert set(experiment.tests) <= set(judged)
        assert len(judged) == len(set(judged))
    for row, schedule in product(ROWS, SCHEDULES):
        settings = {**SCHEDULES[schedule], **TRAINED.get(row, ROWS[row]).changes}
        assert set(settings["train"]) <= set(ALL_COLLECTIONS)
        names = tuple(f"data/{name}:train" for name in settings.pop("train"))
        representation = ROWS[row].representation.settings()
        check_config(Config("out", names, representation=representation, **settings))


def test_every_collection_is_left_out_once() -> None:
    left_out = [name for names in FOLDS.values() for name in names]
    assert sorted(left_out) == sorted(ALL_COLLECTIONS)
    for name, names in FOLDS.items():
        assert 2 <= len(names) <= 3
        schedule = SCHEDULES[f"without-{name}"]
        assert set(schedule["train"]) == set(ALL_COLLECTIONS) - set(names)
        assert judged_collections(f"without-{name}") == names
        assert not any(key.removesuffix(":train") in names for key in schedule["weights"])


# --- models that serve several uses


def run_rows(data: Path, out: Path, model: str, *rows: str, name: str = "table5") -> list[Any]:
    options = ExperimentOptions(name, data, out, model, rows=rows, small=True)
    return run_experiment(options, lambda _: None)[1:]


def test_rows_share_a_training(
    data: Path, tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Path] = []

    def train(config: Config, tokenised: Any) -> Path:
        trained.append(Path(config.output))
        return really(config, tokenised)

    really = module.train  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "train", train)
    rows = ("every-4", "every-16-signs", "every-16-floats", "every-signs", "one-16", "one-16-signs")
    results = run_rows(data, tmp_path / "out", tiny_model_path, *rows)
    assert [path.name[:-9] for path in trained] == ["every-0", "one-budget-0"]
    alone, signs, floats, everywhere = (
        result["figures"]["squad-documents"] for result in results[:4]
    )
    assert len({str(figures["alone"]) for figures in (alone, signs, floats)}) > 1
    tokens = everywhere["size"]["bytes"] / (32 / 8)
    assert signs["size"] == {"vectors": 4, "bytes": alone["size"]["bytes"] + round(4 * tokens)}
    assert floats["size"]["bytes"] == alone["size"]["bytes"] + round(64 * tokens)
    assert everywhere["size"]["vectors"] == 0
    assert results[0]["settings"] == results[1]["settings"]
    assert results[1]["use"]["tokens"] == "signs"
    again = run_rows(data, tmp_path / "out", tiny_model_path, *rows)
    assert again == results
    assert len(trained) == 2


def test_published_and_mixed_models(data: Path, tmp_path: Path, tiny_model_path: str) -> None:
    """A share of the starting weights makes another model; an untrained one has no seeds."""
    rows = ("published-mean", "every-16", "mixed-16", "anchored-16")
    options = ExperimentOptions(
        "mixture", data, tmp_path / "out", tiny_model_path, 2, rows, True, learning_rate=5e-3
    )
    results = run_experiment(options, lambda _: None)[1:]
    assert [(result["row"], result["seed"]) for result in results] == [
        ("published-mean", 0),
        *((row, seed) for row in rows[1:] for seed in (0, 1)),
    ]
    published = results[0]
    assert "curve" not in published
    model = load_model(tiny_model_path, preset("single-vector"), device="cpu")
    for test, split in COLLECTIONS.items():
        dataset = load_named_dataset(f"{data / test}:{split}")
        expected = validate(model, make_validation_set(model, dataset))["RR@10"]
        figures = published["figures"][test]["alone"]
        assert figures["RR@10"] == pytest.approx(100 * expected, abs=0.01)
    by_row = {
        result["row"]: json.dumps(result["figures"]) for result in results if result["seed"] == 0
    }
    assert len(set(by_row.values())) == 4


def test_left_out_collections_make_one_table(
    data: Path, tmp_path: Path, tiny_model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds = ("without-squad", "without-software")
    tests = [test for fold in folds for test in judged_collections(fold)]
    left_out = replace(EXPERIMENTS["left-out"], schedules=folds)
    monkeypatch.setitem(EXPERIMENTS, "left-out", left_out)
    out = tmp_path / "out"
    options = ["--data", str(data), "--out", str(out), "--model", tiny_model_path, "--small"]
    rows = ["--row", "published-mean", "--row", "every-16-signs"]
    main(["experiment", "left-out", *options, *rows])
    text = (out / "left-out.md").read_text()
    summary = text.split("## Summary")[1].split("\n## ")[0]
    assert summary.count("\n| ") == 1 + len(tests)
    heading = "| left out | measure | BM25 (SQLite FTS5) | published, one vector | every budget,"
    assert heading in summary
    written = json.loads((out / "left-out.json").read_text())
    assert [result["row"] for result in written] == ["bm25", "published-mean", "every-16-signs"]
    for result in written:
        assert set(result["figures"]) == set(tests)
    assert "train" not in written[2]["settings"], "each training has its own"
    assert len(written[2]["made_by"]) == len(folds)
    for path in (out / "runs").rglob("every-16-signs*.json"):
        result = json.loads(path.read_text())
        trained_on = {name.removesuffix(":train") for name in result["settings"]["train"]}
        assert not trained_on & set(result["figures"])
    # A table of what is there can be made before all trainings are.
    for path in (out / "runs" / "without-squad-small").glob("*.json"):
        path.unlink()
    main(["experiment", "left-out", *options, *rows, "--report"])
    summary = (out / "left-out.md").read_text().split("## Summary")[1].split("\n## ")[0]
    line = next(row for row in summary.splitlines() if "squad-documents" in row)
    assert [cell.strip() for cell in line.split("|")[4:6]] == ["", ""]
