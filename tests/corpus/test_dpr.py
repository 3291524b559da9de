"""DPR's test collections: questions with answers, with or without passages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query
from tests.support.dataset_folders import Make, content, gzipped, refused

ENTRIES: list[dict[str, Any]] = [
    {
        "dataset": "nq_dev_psgs_w100",
        "question": "which river?",
        "answers": ["Nile", "the Nile"],
        "positive_ctxs": [
            {"title": "Nile", "text": "A river.", "score": 1000, "passage_id": "1"},
            {"title": "City", "text": "A city.", "score": 10, "passage_id": "2"},
        ],
        "negative_ctxs": [],
        "hard_negative_ctxs": [{"title": "City", "text": "A city.", "passage_id": "2"}],
    },
    {"question": "not judged", "answers": ["Cairo"], "positive_ctxs": []},
    {"question": "which city?", "answers": [], "positive_ctxs": [{"psg_id": 2}]},
]
# As csv.writer writes them: a field with double quotes is quoted, and they are doubled.
ANSWERED = """who got the first nobel prize in physics\t['Wilhelm Conrad Röntgen']
what's "his" name?\t"['O\\'Neill', ""O'Neill"", '""Jack""']"
"a ""quoted"" question"\t['a\\tb', 'C:\\dir']
"""
ANSWERED_QUERIES = [
    Query("0", "who got the first nobel prize in physics", ("Wilhelm Conrad Röntgen",)),
    Query("1", 'what\'s "his" name?', ("O'Neill", "O'Neill", '"Jack"')),
    Query("2", 'a "quoted" question', ("a\tb", "C:\\dir")),
]


DPR: dict[str, Any] = {
    "psgs_w100.tsv": "id\ttext\ttitle\n1\tA river.\tNile\n2\tA city.\tCity\n",
    "nq-dev.json": json.dumps(ENTRIES),
    "nq-train.json": json.dumps(ENTRIES[2:]),
}


def test_dpr(make: Make) -> None:
    folder = make(DPR)
    dataset = load_dataset(str(folder), "dev")
    assert dataset.source == str(folder / "psgs_w100.tsv")
    assert content(dataset) == (
        [Document("1", "A river.", "Nile"), Document("2", "A city.", "City")],
        [
            Query("0", "which river?", ("Nile", "the Nile")),
            Query("1", "not judged", ("Cairo",)),  # the answer judges it
            Query("2", "which city?"),
        ],
        [Qrel("0", "1", 1), Qrel("0", "2", 1), Qrel("2", "2", 1)],
    )
    assert len(load_dataset(str(folder), "train").queries) == 1
    assert len(load_dataset(str(folder), "nq-dev").queries) == 3


def test_dpr_of_several_sets(make: Make) -> None:
    make(DPR)
    folder = make({"trivia-dev.json": b"\xef\xbb\xbf" + json.dumps(ENTRIES[1:]).encode()})
    refused(folder, "dev", "*dev*.json: 2 files fit")
    refused(folder, "test", "*test*.json or *test*.csv: there is no such file")
    assert len(load_dataset(str(folder), "trivia-dev").queries) == 2


def test_dpr_gzipped(make: Make) -> None:
    plain = load_dataset(str(make(DPR, "plain")), "dev")
    folder = make(gzipped(DPR), "gzipped")
    dataset = load_dataset(str(folder), "dev")
    assert content(dataset) == content(plain)
    assert dataset.source == str(folder / "psgs_w100.tsv.gz")
    for name in ("psgs_w100.tsv.gz", "nq-dev.json.gz"):
        broken = make(gzipped(DPR), f"broken {name}")
        (broken / name).write_bytes((broken / name).read_bytes()[:-9])
        with pytest.raises(CorpusError, match=rf"{name}.*: the gzip file is damaged or cut short"):
            list(load_dataset(str(broken), "dev").documents())


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("split", ["test", "nq-test", "nq-test.qa"])
def test_dpr_answers_without_passages(make: Make, suffix: str, split: str) -> None:
    folder = make({"psgs_w100.tsv": DPR["psgs_w100.tsv"], f"nq-test.qa.csv{suffix}": ANSWERED})
    documents, queries, qrels = content(load_dataset(str(folder), split))
    assert [document.id for document in documents] == ["1", "2"]
    assert (queries, qrels) == (ANSWERED_QUERIES, [])


def test_dpr_judgements_come_before_answers_alone(make: Make) -> None:
    make(DPR)
    folder = make({"nq-dev.qa.csv": ANSWERED})
    assert len(load_dataset(str(folder), "nq-dev").qrels) == 3
    assert content(load_dataset(str(folder), "nq-dev.qa"))[1:] == (ANSWERED_QUERIES, [])
    folder = make({"trivia-test.qa.csv": ANSWERED, "nq-test.qa.csv": ANSWERED})
    refused(folder, "test", "*test*.csv: 2 files fit")


@pytest.mark.parametrize(
    "row",
    [
        "a question",
        "a question\t['a']\tmore",
        "a question\tNile",
        "a question\t'Nile'",
        "a question\t['Nile'",
        "a question\t[1869]",
        "a question\t[b'Nile']",
        "a question\t{'Nile'}",
        "a question\t[open('x')]",
        "a question\t[__import__('os').getcwd()]",
        "a question\t['a' * 9]",
        pytest.param("a question\t" + "[" * 100_000, id="brackets"),
        pytest.param("a question\t[" + "-" * 100_000 + "1]", id="signs"),
        pytest.param("a question\t[" + "'a'+" * 100_000 + "'a']", id="sums"),
        "a question\t['\0']",
    ],
)
def test_what_is_no_row_of_answers(make: Make, row: str) -> None:
    make(DPR)
    folder = make({"nq-test.qa.csv": f"{ANSWERED}{row}\n"})
    refused(folder, "test", "nq-test.qa.csv line 4: this is not DPR's format", "a list of answers")


def test_answers_that_judge_nothing(make: Make) -> None:
    make(DPR)
    refused(make({"nq-test.qa.csv": "a question\t[]\n"}), "test", "no judged queries")
    refused(make({"nq-test.qa.csv": " \t['Nile']\n"}), "test", "'0'", "no text")
    refused(make({"nq-test.qa.csv": "a\t\"['Nile']\n"}), "test", "line 1: not valid CSV")


def entry(**changes: Any) -> str:
    return json.dumps([ENTRIES[0], {**ENTRIES[1], **changes}])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "nq-dev.json: "),
        ('[{"question": ', "nq-dev.json: "),
        ('{"question": "?", "answers": [], "positive_ctxs": []}', "nq-dev.json: "),
        ("3", "nq-dev.json: "),
        ("[" * 100_000, "nq-dev.json: "),
        ('[["question", "answers"]]', "nq-dev.json entry 0: "),
        (json.dumps([ENTRIES[0], {"question": "?", "answers": []}]), "nq-dev.json entry 1: "),
        (entry(question=None), "nq-dev.json entry 1: "),
        (entry(answers="Cairo"), "nq-dev.json entry 1: "),  # not five answers of a letter each
        (entry(answers=[1869]), "nq-dev.json entry 1: "),
        (entry(answers=None), "nq-dev.json entry 1: "),
        (entry(positive_ctxs=None), "nq-dev.json entry 1: "),
        (entry(positive_ctxs=["1"]), "nq-dev.json entry 1: "),
        (entry(positive_ctxs=[{"title": "no id"}]), "nq-dev.json entry 1: "),
        (entry(positive_ctxs=[{"passage_id": None}]), "nq-dev.json entry 1: "),
    ],
)
def test_what_is_not_dpr(make: Make, text: str, where: str) -> None:
    make(DPR)
    refused(make({"nq-dev.json": text}), "dev", where, "not DPR's format", '"positive_ctxs"')


def test_other_broken_dpr_files(make: Make) -> None:
    make(DPR)
    refused(make({"nq-dev.json": entry(question=" ")}), "dev", "1 judged", "'1'")
    refused(make({"nq-dev.json": b'["caf\xe9"]'}), "dev", "nq-dev.json line 1: not valid UTF-8")
    refused(make({"nq-dev.json": "[]"}), "dev", "no judged queries")


def test_dpr_passages_are_quoted_as_in_a_csv_file(tmp_path: Path) -> None:
    folder = tmp_path / "dpr"
    folder.mkdir()
    (folder / "psgs_w100.tsv").write_text(
        'id\ttext\ttitle\n1\t"He said ""no"" and\tleft."\tA "title"\n2\tplain\tB\n'
    )
    (folder / "nq-dev.json").write_text(
        json.dumps([{"question": "q", "answers": ["no"], "positive_ctxs": [{"passage_id": "1"}]}])
    )
    dataset = load_dataset(str(folder), "dev")
    texts = [(document.id, document.text, document.title) for document in dataset.documents()]
    assert texts == [("1", 'He said "no" and\tleft.', 'A "title"'), ("2", "plain", "B")]
    (folder / "psgs_w100.tsv").write_text("1\tno title\n")
    with pytest.raises(CorpusError, match="should have an id, a text and a title"):
        list(dataset.documents())
