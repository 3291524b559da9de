from __future__ import annotations

from pathlib import Path

import pytest
from collection import write_collection

from pseudoquery.datasets import Dataset, load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query
from pseudoquery.triples import (
    Example,
    Lesson,
    draw,
    hard_negatives,
    lesson,
    read_negatives,
    write_negatives,
)

DOCUMENTS = [Document(name, f"text of {name}", title="T") for name in "abcde"]


def dataset(queries: list[Query], qrels: list[Qrel]) -> Dataset:
    return Dataset("set", "", lambda: iter(DOCUMENTS), tuple(queries), tuple(qrels))


def test_a_lesson_collects_texts_and_positives(tmp_path: Path) -> None:
    own = lesson(load_dataset(str(write_collection(tmp_path / "set")), "train"))
    assert (len(own.texts), len(own.examples), own.without_positive) == (12, 24, 0)
    assert own.examples[0] == Example("q0-0", "what about the king", ("d0",), ())
    titled = lesson(dataset([Query("1", "q")], [Qrel("1", "a", 1), Qrel("1", "b", 2)]))
    assert titled.texts["a"] == "T\ntext of a"
    assert titled.examples[0].positives == ("a", "b")


def test_queries_without_a_positive_are_left_out_and_counted() -> None:
    queries = [Query("1", "q"), Query("2", "r")]
    own = lesson(dataset(queries, [Qrel("1", "a", 1), Qrel("2", "b", 0)]))
    assert [example.query_id for example in own.examples] == ["1"]
    assert own.without_positive == 1
    with pytest.raises(CorpusError, match="no query has a positive"):
        lesson(dataset(queries, [Qrel("1", "a", 0), Qrel("2", "b", 0)]))


def test_a_positive_that_is_not_in_the_corpus_is_an_error() -> None:
    with pytest.raises(CorpusError, match="'1' is answered by the document 'z', which is not in"):
        lesson(dataset([Query("1", "q")], [Qrel("1", "z", 1)]))


def test_hard_negatives_are_wrong_for_sure() -> None:
    example = Example("1", "q", ("b",), ("Paris",))
    texts = {"a": "nothing", "b": "x", "c": "It was PARIS.", "d": "parisian", "e": "more"}
    assert hard_negatives(example, "abcde", texts, 2) == ["a", "d"]
    assert hard_negatives(example, "bc", texts, 2) == []


def test_negatives_go_through_a_file(tmp_path: Path) -> None:
    negatives = {"set 1": ["a", "b"], "set 2": []}
    write_negatives(negatives, tmp_path / "n.jsonl")
    assert read_negatives(tmp_path / "n.jsonl") == negatives
    (tmp_path / "n.jsonl").write_text('{"query": "1", "negatives": []}\n{"query": 2}\n')
    with pytest.raises(CorpusError, match=r"n\.jsonl line 2: expected"):
        read_negatives(tmp_path / "n.jsonl")


def test_a_draw_is_the_same_for_the_same_seed_and_differs_otherwise() -> None:
    own = Lesson("set", {str(n): "" for n in range(50)}, (), 0)
    example = Example("1", "q", ("0", "1", "2"), ())
    mined = [str(n) for n in range(3, 40)]
    first = draw(example, mined, 4, own, "0 a")
    assert first == draw(example, mined, 4, own, "0 a")
    draws = [draw(example, mined, 4, own, f"{seed}") for seed in range(30)]
    assert len({tuple(negatives) for _, negatives in draws}) > 20
    assert {positive for positive, _ in draws} == {"0", "1", "2"}
    assert all(set(negatives) <= set(mined) for _, negatives in draws)
    assert all(len(set(negatives)) == 4 for _, negatives in draws)


def test_missing_negatives_are_filled_with_random_documents() -> None:
    own = Lesson("set", {str(n): "" for n in range(9)}, (), 0)
    example = Example("1", "q", ("0",), ())
    for seed in range(20):
        _, negatives = draw(example, ["4", "unknown"], 3, own, str(seed))
        assert len(negatives) == 3
        assert negatives[0] == "4"
        assert "0" not in negatives
