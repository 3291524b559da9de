"""The table is written, from figures that fit together; how fast anything is decides no test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pseudoquery.research import table4
from pseudoquery.research.table4 import PAPER, Sizes, format_table4
from tests.support.command import Run


def test_the_table_in_small(run: Run, tmp_path: Path) -> None:
    printed = run("experiment", "table4", "--small", "--out", tmp_path / "results", "--json").json
    written = json.loads((tmp_path / "results" / "table4.json").read_text())
    assert written == printed
    assert set(written["seconds"]) == set(PAPER)
    assert all(seconds > 0 for seconds in written["seconds"].values())
    assert written["sizes"]["documents"] < Sizes().documents
    text = (tmp_path / "results" / "table4.md").read_text()
    assert text == format_table4(written)
    assert "`pseudoquery experiment table4 --small`" in text
    assert "not even these" in text
    assert "without the host's part" not in text


def test_the_ratios_are_those_of_the_figures() -> None:
    report = {
        "command": "pseudoquery experiment table4",
        "commit": "abc",
        "source": "def",
        "machine": {"gpu": "A GPU", "processor": "a processor", "torch": "2"},
        "sizes": {name: getattr(Sizes(), name) for name in Sizes.__dataclass_fields__},
        "seconds": {
            "encoder": 2e-4,
            "clustering": 3e-6,
            "one vector": 1e-3,
            "pseudo queries": 9e-3,
        },
    }
    text = format_table4(report)
    assert "| K-means / the encoder | 0.015 | 2.33 |" in text
    assert "| pseudo queries / one vector | 9 | 8.8 |" in text
    assert "3,200,000 documents x 8 x 768" in text
    assert "A GPU" in text
    assert "K-means without the host's part" in text


def test_what_can_not_be_done_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table4, "runs_kernels", lambda: False)
    refused = run("experiment", "table4", "--out", tmp_path)
    assert refused.code == 2
    assert "--small runs it on a CPU" in refused.err
    refused = run("experiment", "table4", "--small", "--seeds", 2, "--out", tmp_path)
    assert "--seeds has no effect for table4" in refused.err
    refused = run("experiment", "table2", "--out", tmp_path)
    assert "--data" in refused.err
    assert not list(tmp_path.iterdir())
