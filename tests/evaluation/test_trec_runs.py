"""Run files: what is written is read back, and what is no run is refused."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pseudoquery.errors import CorpusError
from pseudoquery.evaluation.trec_runs import Run, read_run, write_run

GOOD = "q1 Q0 d1 1 2.5 name"

# A byte order mark at the very start of a file is none of its text.
ids = st.text(st.characters(codec="utf-8"), min_size=1).filter(
    lambda text: text.split() == [text] and text[0] != "\ufeff"
)
rankings = st.lists(
    st.tuples(ids, st.floats(allow_nan=False)), min_size=1, max_size=5, unique_by=lambda one: one[0]
)


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@given(run=st.dictionaries(ids, rankings, max_size=4), name=ids)
def test_what_is_written_is_read_back(run: Run, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.trec"
        write_run(run, path, name)
        # Neither the ids' nor the scores' order: the ranking's own.
        assert read_run(path) == run


def test_the_lines_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    write_run({"q1": [("b", 2.5), ("a", 1e-30)], "none": [], "q2": [("b", -1.0)]}, path)
    assert path.read_text() == (
        "q1 Q0 b 1 2.5 pseudoquery\nq1 Q0 a 2 1e-30 pseudoquery\nq2 Q0 b 1 -1.0 pseudoquery\n"
    )
    assert read_run(path) == {"q1": [("b", 2.5), ("a", 1e-30)], "q2": [("b", -1.0)]}
    write_run({}, path, "other")
    assert path.read_text() == ""
    assert read_run(path) == {}


def test_scores_of_numpy_are_numbers(tmp_path: Path) -> None:
    write_run({"q": [("d", np.float64(0.1))]}, tmp_path / "run.trec")
    assert read_run(tmp_path / "run.trec") == {"q": [("d", 0.1)]}


def test_ranks_decide_then_scores_then_ids(tmp_path: Path) -> None:
    path = written(
        tmp_path / "run.trec",
        "q1 Q0 third 10 99 x",
        "q2 Q0 low 0 1 x",
        "q1 Q0 first 1 -5 x",
        "q2 Q0 high 0 2 x",
        "q1 Q0 second 9 -9 x",
        "q2 Q0 also-low 0 1 x",
    )
    assert read_run(path) == {
        "q1": [("first", -5.0), ("second", -9.0), ("third", 99.0)],
        "q2": [("high", 2.0), ("also-low", 1.0), ("low", 1.0)],
    }


def test_spaces_tabs_blank_lines_and_marks_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    path.write_bytes(b"\xef\xbb\xbfq1\tQ0\td1\t1\t2.5\tname\r\n\r\n  q1  Q0 d2 2 inf name  ")
    assert read_run(path) == {"q1": [("d1", 2.5), ("d2", math.inf)]}


@pytest.mark.parametrize(
    "line",
    [
        "q1 Q0 d1 1 2.5",
        "q1 Q0 d1 1 2.5 name more",
        "q1 0 d1",
        "q1 Q0 d1 first 2.5 name",
        "q1 Q0 d1 1.5 2.5 name",
        "q1 Q0 d1 1 high name",
        '{"query": "q1"}',
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "run.trec", GOOD, "", line)
    with pytest.raises(CorpusError, match=r"run\.trec line 3: a run file has six columns: .*\.$"):
        read_run(path)


@pytest.mark.parametrize("score", ["nan", "NaN", "-nan"])
def test_a_score_must_be_a_number(tmp_path: Path, score: str) -> None:
    path = written(tmp_path / "run.trec", GOOD, f"q1 Q0 d2 2 {score} name")
    with pytest.raises(CorpusError, match=r"run\.trec line 2: the score is not a number\.$"):
        read_run(path)


def test_a_document_is_ranked_once(tmp_path: Path) -> None:
    path = written(tmp_path / "run.trec", GOOD, "q2 Q0 d1 1 1 x", "q1 Q0 d1 2 1 x")
    with pytest.raises(CorpusError, match=r"run\.trec line 3: .*'q1'.*'d1' already\.$"):
        read_run(path)


@pytest.mark.parametrize(
    ("query", "document", "bad"),
    [
        ("q 1", "d", "'q 1'"),
        ("q", "d 1", "'d 1'"),
        ("q", "d\t1", r"'d\\t1'"),
        ("q", "d\n", r"'d\\n'"),
        ("q", "d\u2028", r"'d\\u2028'"),
        ("", "d", "''"),
        ("q 1", "", "'q 1'"),  # six columns all the same, and all of them wrong
        ("q", "", "''"),
    ],
)
def test_ids_that_would_break_the_columns_are_refused(
    tmp_path: Path, query: str, document: str, bad: str
) -> None:
    path = written(tmp_path / "run.trec", GOOD)
    run = {"good": [("good", 1.0)], query: [("good", 2.0), (document, 1.0)]}
    with pytest.raises(CorpusError, match=rf"run\.trec: {bad} can't be written .*rename it\.$"):
        write_run(run, path)
    assert path.read_text() == f"{GOOD}\n", "half a run is worse than none"


def test_a_name_with_a_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="'my run' can't be written"):
        write_run({"q": [("d", 1.0)]}, tmp_path / "run.trec", "my run")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"q1 Q0 caf\xe9 1 2.5 name\n")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "latin"):
        with pytest.raises(CorpusError, match=r"can't be read as a run file \(.*\)\.$") as raised:
            read_run(path)
        assert str(raised.value).startswith(f"{path} ")
        assert "\n" not in str(raised.value)
