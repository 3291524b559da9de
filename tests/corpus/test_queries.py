"""Queries and judgements, of BEIR and of TREC."""

from __future__ import annotations

from pathlib import Path

import pytest

from pseudoquery.corpus.documents import read_qrels, read_queries
from pseudoquery.errors import CorpusError
from pseudoquery.records import Qrel, Query
from tests.support.sources import GOOD, write

BEIR = b"query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize("name", ["queries.jsonl", "queries.jsonl.gz"])
def test_queries_of_a_folder_and_of_a_file(tmp_path: Path, name: str) -> None:
    content = (
        '{"_id": "q1", "text": "who?", "metadata": {"answers": ["me", "you"]}}\n'
        '{"_id": 2, "text": "why?", "metadata": {}}\n\n'
        '{"_id": "q3", "text": "", "metadata": {"answers": null}}\n'
    )
    path = write(tmp_path, name, content)
    expected = [Query("q1", "who?", ("me", "you")), Query("2", "why?"), Query("q3", "")]
    assert list(read_queries(tmp_path)) == list(read_queries(str(path))) == expected


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        (b"{", "not valid JSON"),
        (b'{"_id": "q"}', '"text" is missing'),
        (b'{"_id": "", "text": "x"}', "the id is empty"),
        (b'{"_id": "q", "text": "\xff"}', "not valid UTF-8"),
        (rb'{"_id": "q", "text": "\ud83d"}', "lone surrogate"),
        (b'{"_id": "q", "text": "x", "metadata": {"answers": "me"}}', "array of strings"),
        (b'{"_id": "q", "text": "x", "metadata": {"answers": [1]}}', "array of strings"),
    ],
)
def test_bad_query(tmp_path: Path, line: bytes, fragment: str) -> None:
    path = write(tmp_path, "queries.jsonl", GOOD + line)
    with pytest.raises(CorpusError) as raised:
        list(read_queries(path))
    assert str(raised.value).startswith(f"{path} line 2: ")
    assert fragment in str(raised.value)


def test_missing_queries(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"queries\.jsonl: can't be read \(No such file"):
        list(read_queries(tmp_path))
    with pytest.raises(CorpusError, match=r"gone: can't be read \(No such file"):
        list(read_queries(tmp_path / "gone"))


@pytest.mark.parametrize("name", ["test.tsv", "test.tsv.gz"])
def test_beir_qrels(tmp_path: Path, name: str) -> None:
    content = "\ufeffquery-id\tcorpus-id\tscore\r\nq 1\tmy notes.txt\t1\r\n\r\n2\té\t0"
    expected = [Qrel("q 1", "my notes.txt", 1), Qrel("2", "é", 0)]
    assert list(read_qrels(write(tmp_path, name, content))) == expected


def test_trec_qrels(tmp_path: Path) -> None:
    path = write(tmp_path, "qrels.txt", "q1 0 d1 2\nq1\t0  d2\t-1\n")
    assert list(read_qrels(str(path))) == [Qrel("q1", "d1", 2), Qrel("q1", "d2", -1)]


@pytest.mark.parametrize(
    ("raw", "fragment"),
    [
        (BEIR + b"q\td\n", "query-id, corpus-id, score, none of them empty, between tabs"),
        (BEIR + b"q d 1\n", "there are 1."),
        (BEIR + b"\td\t1\n", "none of them empty"),
        (BEIR + b"q\td\tyes\n", "the relevance is 'yes'; it must be an integer"),
        (BEIR + b"q\td\t99999999999999999999\n", "it must be an integer of 32 bits"),
        (BEIR + b"q\t\xff\t1\n", "not valid UTF-8 (byte 0xff)"),
        (b"q 0 d 1\nq\td\t1\n", "query, 0, document, relevance, none of them empty; there are 3."),
        (b"q 0 d 1\nq 0 d 0.5\n", "the relevance is '0.5'"),
    ],
)
def test_bad_qrels(tmp_path: Path, raw: bytes, fragment: str) -> None:
    path = write(tmp_path, "q.tsv", raw)
    with pytest.raises(CorpusError) as raised:
        list(read_qrels(path))
    assert str(raised.value).startswith(f"{path} line 2: ")
    assert fragment in str(raised.value)


def test_missing_qrels(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"gone\.tsv: can't be read \(No such file"):
        list(read_qrels(tmp_path / "gone.tsv"))
    with pytest.raises(CorpusError, match=r"can't be read \(Is a directory"):
        list(read_qrels(tmp_path))
