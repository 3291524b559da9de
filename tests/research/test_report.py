from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.errors import ModelError
from pseudoquery.research.report import (
    draw_plot,
    format_report,
    group_by_row,
    headline_measure,
    write_report,
)
from pseudoquery.research.rows import ROWS
from pseudoquery.research.tables import EXPERIMENTS, Experiment

MEASURES = ("RR@10", "RR@100", "nDCG@10", "Success@20", "R@1000")


def result(
    row: str, seed: int, value: float, tests: tuple[str, ...], **more: Any
) -> dict[str, Any]:
    figures = {"alone": dict.fromkeys(MEASURES, value)}
    if row != "bm25":
        fused = {"weighted": {"RR@10": value + 5, "nDCG@10": value + 6}}
        figures |= fused | {"rrf": {"RR@10": value + 1, "nDCG@10": value + 2}}
        figures["size"] = {"vectors": 15.6}
    label = ROWS[row].label if row in ROWS else "BM25"
    return {
        "row": row,
        "label": label,
        "seed": seed,
        "figures": dict.fromkeys(tests, figures),
        **more,
    }


def results(experiment: Experiment) -> list[dict[str, Any]]:
    made_by = {
        "command": "pseudoquery experiment x",
        "commit": "abc",
        "source": "def",
        "device": "a GPU",
        "cores": "4",
        "torch": "2.0",
        "sentence-transformers": "6.0",
    }
    trained = [
        result(
            row,
            seed,
            50.0 + 10 * seed,
            experiment.tests,
            made_by=made_by,
            settings={"epochs": 2.0, "learning_rate": number, "seed": seed},
            curve={"step": [1, 2], "loss": [2.0, 1.0], "max_r": [0.1, 0.2], "var_r": [0.0, 0.1]},
        )
        for number, row in enumerate(experiment.rows)
        for seed in (0, 1)
    ]
    return [result("bm25", 0, 78.0, experiment.tests), *trained]


def test_a_table() -> None:
    experiment = EXPERIMENTS["table2"]
    text = format_report("table2", experiment, results(experiment))
    documents, pages = text.split("## medquad-pages")
    assert "| documents as | vectors | MRR@10 | MRR@100 | top-20 |" in documents
    assert "| documents as | vectors | nDCG@10 | MRR@100 | top-20 |" in pages
    assert "| BM25 |  | 78.0 | 78.0 | 78.0 | 78.0 |  |  |  |" in documents
    mean_and_spread = "55.0 ± 7.1"
    line = next(row for row in documents.splitlines() if "pseudo queries, k=8 " in row)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:3] == ["16", mean_and_spread]
    assert cells[-3:] == ["60.0 ± 7.1", "56.0 ± 7.1", "39.2"]
    assert "`pseudoquery experiment x`, commit abc (source def), a GPU, 4 cores" in text
    assert text.count("commit abc") == 1, "each provenance is given once"
    assert '`{"epochs": 2.0}`' in text, "only what all rows share"
    assert "- ± is the standard deviation over 2 trainings" in text


def test_one_seed_has_no_spread() -> None:
    experiment = EXPERIMENTS["table2"]
    alone = [result for result in results(experiment) if result["seed"] == 0]
    text = format_report("table2", experiment, alone)
    assert "±" not in text
    assert "- one training a row" in text
    more = [result for result in results(experiment) if result["seed"]]
    some = [*alone, *(result for result in more if result["row"] == "mean")]
    assert "a row without ± is one training" in format_report("table2", experiment, some)


def test_files_and_plots(tmp_path: Path) -> None:
    for name in ("table2", "figure2"):
        experiment = EXPERIMENTS[name]
        given = results(experiment)
        for folder in ("one", "two"):
            write_report(name, experiment, given, tmp_path / folder)
        assert json.loads((tmp_path / "one" / f"{name}.json").read_text()) == given
        first, second = (
            (tmp_path / folder / f"{name}.svg").read_bytes() for folder in ("one", "two")
        )
        assert first == second, "the same figures make the same plot"
        assert f"]({name}.svg)" in (tmp_path / "one" / f"{name}.md").read_text()
        assert len(first) < 200_000


def test_headlines_and_rows() -> None:
    assert (headline_measure("scifact"), headline_measure("squad-passages")) == ("nDCG@10", "RR@10")
    rows = group_by_row(results(EXPERIMENTS["figure2"]))
    assert {name: len(seeds) for name, seeds in rows.items()} == {
        "bm25": 1,
        "pseudo-16": 2,
        "first": 2,
        "random": 2,
    }


def test_plots_need_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    experiment = EXPERIMENTS["figure2"]
    with pytest.raises(ModelError, match=r"run: pip install 'pseudoquery\[train\]'"):
        draw_plot(experiment, results(experiment), tmp_path / "x.svg")


def test_other_collections_are_left_out(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["table2"]
    given = results(experiment)
    more = [{**result, "figures": {**result["figures"], "scifact": {}}} for result in given]
    write_report("table2", experiment, more, tmp_path)
    assert json.loads((tmp_path / "table2.json").read_text()) == given
