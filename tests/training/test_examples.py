from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pseudoquery.corpus.datasets import Dataset, load_dataset
from pseudoquery.errors import CorpusError
from pseudoquery.records import Document, Qrel, Query
from pseudoquery.training.examples import Example, TrainingSet, hash_training_set, make_training_set
from pseudoquery.training.negatives import (
    draw_negatives,
    read_negatives,
    select_hard_negatives,
    write_negatives,
)
from pseudoquery.training.teacher import read_scores
from tests.support.collection import write_collection, write_scores

DOCUMENTS = [Document(name, f"text of {name}", title="T") for name in "abcde"]


def dataset(queries: list[Query], qrels: list[Qrel]) -> Dataset:
    return Dataset("set", "", lambda: iter(DOCUMENTS), tuple(queries), tuple(qrels))


def test_a_lesson_collects_texts_and_positives(tmp_path: Path) -> None:
    training_set = make_training_set(load_dataset(str(write_collection(tmp_path / "set")), "train"))
    assert (len(training_set.texts), len(training_set.examples), training_set.without_positive) == (
        12,
        24,
        0,
    )
    assert training_set.ids == tuple(training_set.texts)
    assert training_set.examples[0] == Example("q0-0", "what about the king", ("d0",), ())
    titled = make_training_set(dataset([Query("1", "q")], [Qrel("1", "a", 1), Qrel("1", "b", 2)]))
    assert titled.texts["a"] == "T\ntext of a"
    assert titled.examples[0].positives == ("a", "b")


def test_queries_without_a_positive_are_left_out_and_counted() -> None:
    queries = [Query("1", "q"), Query("2", "r")]
    training_set = make_training_set(dataset(queries, [Qrel("1", "a", 1), Qrel("2", "b", 0)]))
    assert [example.query_id for example in training_set.examples] == ["1"]
    assert training_set.without_positive == 1
    with pytest.raises(CorpusError, match="no query has a positive"):
        make_training_set(dataset(queries, [Qrel("1", "a", 0), Qrel("2", "b", 0)]))


def test_a_positive_that_is_not_in_the_corpus_is_an_error() -> None:
    with pytest.raises(CorpusError, match="'1' is answered by the document 'z', which is not in"):
        make_training_set(dataset([Query("1", "q")], [Qrel("1", "z", 1)]))


def test_hard_negatives_are_wrong_for_sure() -> None:
    example = Example("1", "q", ("b",), ("Paris",))
    texts = {"a": "nothing", "b": "x", "c": "It was PARIS.", "d": "parisian", "e": "more"}
    assert select_hard_negatives(example, "abcde", texts, 2) == ["a", "d"]
    assert select_hard_negatives(example, "bc", texts, 2) == []


def test_negatives_go_through_a_file(tmp_path: Path) -> None:
    negatives = {"set 1": ["a", "b"], "set 2": []}
    write_negatives(negatives, tmp_path / "n.jsonl")
    assert read_negatives(tmp_path / "n.jsonl") == negatives
    (tmp_path / "n.jsonl").write_text('{"query": "1", "negatives": []}\n{"query": 2}\n')
    with pytest.raises(CorpusError, match=r"n\.jsonl line 2: expected"):
        read_negatives(tmp_path / "n.jsonl")


def test_scores_go_through_a_file(tmp_path: Path) -> None:
    scores = {"set 1": {"a": 1.5, "b": -2.0}, "set 2": {}}
    write_scores(scores, tmp_path / "s.jsonl")
    assert read_scores(tmp_path / "s.jsonl") == scores
    for bad in ('{"query": 2}', '{"query": 1, "scores": [1]}', "nothing", "[]"):
        (tmp_path / "s.jsonl").write_text('{"query": "1", "scores": {"a": 1}}\n' + bad + "\n")
        with pytest.raises(CorpusError, match=r"s\.jsonl line 2: expected"):
            read_scores(tmp_path / "s.jsonl")
    with pytest.raises(CorpusError, match=r"missing\.jsonl can't be read"):
        read_scores(tmp_path / "missing.jsonl")


def numbered(count: int) -> TrainingSet:
    ids = tuple(str(number) for number in range(count))
    return TrainingSet("set", dict.fromkeys(ids, ""), ids, (), 0)


def test_a_draw_is_the_same_for_the_same_seed_and_differs_otherwise() -> None:
    training_set = numbered(50)
    example = Example("1", "q", ("0", "1", "2"), ())
    mined = [str(n) for n in range(3, 40)]
    first = draw_negatives([example], [mined], 4, training_set, "0 a")
    assert first == draw_negatives([example], [mined], 4, training_set, "0 a")
    draws = [draw_negatives([example], [mined], 4, training_set, f"{seed}") for seed in range(30)]
    assert len({tuple(negatives) for negatives in draws}) > 20
    assert all(set(negatives) <= set(mined) for negatives in draws)
    assert all(len(set(negatives)) == 4 for negatives in draws)


def test_queries_of_one_document_take_turns() -> None:
    training_set = numbered(50)
    examples = [Example(str(number), "q", ("0",), ()) for number in range(3)]
    mined = [[str(10 * number + one) for one in range(1, 9)] for number in range(3)]
    for seed in range(10):
        drawn = draw_negatives(examples, mined, 6, training_set, str(seed))
        assert sorted(int(one) // 10 for one in drawn) == [0, 0, 1, 1, 2, 2]


def test_what_answers_one_query_is_no_negative_of_another() -> None:
    training_set = numbered(9)
    examples = [Example("1", "q", ("0", "1"), ()), Example("2", "q", ("0", "2"), ())]
    for seed in range(20):
        drawn = draw_negatives(examples, [["2", "3"], ["1", "4"]], 4, training_set, str(seed))
        assert {"3", "4"} <= set(drawn)
        assert not {"0", "1", "2"} & set(drawn)


def test_missing_negatives_are_filled_with_random_documents() -> None:
    training_set = numbered(9)
    example = Example("1", "q", ("0",), ())
    for seed in range(20):
        negatives = draw_negatives([example], [["4", "unknown"]], 3, training_set, str(seed))
        assert len(negatives) == 3
        assert negatives[0] == "4"
        assert "0" not in negatives
    assert draw_negatives([example], [[]], 2, numbered(1), "0") == ["0", "0"], "there is no other"


def test_a_checksum_is_of_all_texts_and_examples() -> None:
    example = Example("1", "q", ("a",), ())
    training_set = TrainingSet("set", {"a": "text"}, ("a",), (example,), 0)
    assert hash_training_set(training_set) == hash_training_set(replace(training_set, name="other"))
    changes = (
        replace(training_set, texts={"a": "test"}),
        replace(training_set, texts={"b": "text"}),
        replace(training_set, examples=(replace(example, query="r"),)),
        replace(training_set, examples=(replace(example, positives=("b",)),)),
    )
    assert len({hash_training_set(changed) for changed in (training_set, *changes)}) == 5
