from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.training.batches import (
    BatchMaker,
    MissingNegatives,
    TokenisedSets,
    make_blocks,
    make_rows,
    tokenise_sets,
)
from pseudoquery.training.examples import Example, TrainingSet, make_training_set, query_key
from tests.support.collection import THINGS, write_collection


@pytest.fixture
def training_set(tmp_path: Path) -> TrainingSet:
    return make_training_set(load_dataset(str(write_collection(tmp_path / "set")), "train"))


@pytest.fixture
def tokenised(training_set: TrainingSet, tiny_model: MultiVectorEncoder) -> TokenisedSets:
    return tokenise_sets(tiny_model, [training_set, training_set])


def positions(batch: dict[str, Any]) -> list[int]:
    documents: list[int] = batch["label"]["documents"].tolist()
    return documents


def test_a_batch_is_positives_then_negatives(
    tokenised: TokenisedSets, tiny_model: MultiVectorEncoder
) -> None:
    batch_maker = BatchMaker(tokenised, negatives=2)
    assert len(batch_maker.rows) == 48
    batch = batch_maker.make_batch([0, 25])
    assert batch["query_input_ids"].shape[0] == 2
    assert batch["documents_input_ids"].shape[0] == 6
    first, second = batch_maker.rows[0], batch_maker.rows[25]
    assert (first.set_position, second.set_position) == (0, 1)
    assert positions(batch)[:2] == [int(first.positive[1:]), 12 + int(second.positive[1:])], (
        "the same document of two training sets is two documents"
    )
    assert all(number < 12 for number in positions(batch)[2::2])
    assert all(number >= 12 for number in positions(batch)[3::2])
    assert batch["label"]["positives"].tolist() == [0, 1]
    ids = batch["documents_input_ids"][0, 0]
    thing = THINGS[int(first.positive[1:])]
    text = tiny_model.tokenizer.decode(ids, skip_special_tokens=True)
    assert f"about the {thing}" in text


def test_negatives_are_drawn_from_those_in_force(
    tokenised: TokenisedSets, training_set: TrainingSet
) -> None:
    batch_maker = BatchMaker(tokenised, negatives=2)
    asked = training_set.examples[batch_maker.rows[0].examples[0]]
    batch_maker.use_negatives({query_key(training_set, asked): ["d7", "d8", "d9", "d10", "d11"]})
    draws = {tuple(positions(batch_maker.make_batch([0], step))[1:]) for step in range(20)}
    assert {number for drawn in draws for number in drawn} == {7, 8, 9, 10, 11}
    assert len(draws) > 5, "each step draws anew"
    for step in range(5):
        again = batch_maker.make_batch([0], step)
        for name, value in batch_maker.make_batch([0], step).items():
            if name != "label":
                assert torch.equal(value, again[name])
    other = BatchMaker(tokenised, negatives=2, seed=1)
    other.use_negatives({query_key(training_set, asked): ["d7", "d8", "d9", "d10", "d11"]})
    assert [positions(other.make_batch([0], step)) for step in range(9)] != [
        positions(batch_maker.make_batch([0], step)) for step in range(9)
    ]


def test_what_negatives_lack_is_counted(
    tokenised: TokenisedSets, training_set: TrainingSet
) -> None:
    batch_maker = BatchMaker(tokenised, negatives=2)
    assert batch_maker.use_negatives({}) == MissingNegatives(queries=48, unknown=0)
    full = {query_key(training_set, example): ["d1"] for example in training_set.examples}
    assert batch_maker.use_negatives(full) == MissingNegatives(queries=0, unknown=0)
    key = query_key(training_set, training_set.examples[3])
    assert batch_maker.use_negatives(full | {key: []}) == MissingNegatives(queries=2, unknown=0)
    assert batch_maker.use_negatives(full | {key: ["d1", "z", "y"]}) == MissingNegatives(
        queries=0, unknown=4
    )
    assert len(positions(batch_maker.make_batch(range(8)))) == 24, "random documents fill the gap"


@st.composite
def training_sets(draw: st.DrawFn) -> TrainingSet:
    ids = tuple(f"d{number}" for number in range(draw(st.integers(1, 6))))
    positives = draw(
        st.lists(st.lists(st.sampled_from(ids), min_size=1, unique=True).map(tuple), min_size=1)
    )
    examples = tuple(Example(f"q{query}", "q", ids, ()) for query, ids in enumerate(positives))
    return TrainingSet(draw(st.sampled_from("ab")), dict.fromkeys(ids, ""), ids, examples, 0)


@given(st.lists(training_sets(), min_size=1, max_size=3), st.integers(1, 5), st.integers(0, 9))
def test_every_query_is_in_one_row_with_a_document_that_answers_it(
    made: list[TrainingSet], most: int, seed: int
) -> None:
    rows = make_rows(made, most, seed)
    assert rows == make_rows(made, most, seed)
    asked = [(row.set_position, place) for row in rows for place in row.examples]
    expected = [
        (n, place)
        for n, training_set in enumerate(made)
        for place in range(len(training_set.examples))
    ]
    assert sorted(asked) == expected
    for row in rows:
        assert 1 <= len(row.examples) <= most
        answered = [made[row.set_position].examples[place].positives for place in row.examples]
        assert all(row.positive in positives for positives in answered)
    for number in range(len(made)):
        full = [
            row.positive for row in rows if row.set_position == number and len(row.examples) < most
        ]
        assert len(full) == len(set(full)), "at most one row of a document is not full"


def test_queries_of_a_document_share_it(
    tokenised: TokenisedSets, training_set: TrainingSet
) -> None:
    batch_maker = BatchMaker(tokenised, negatives=1, queries_per_document=2)
    assert len(batch_maker.rows) == 24
    batch = batch_maker.make_batch([0, 5, 7])
    assert batch["query_input_ids"].shape[0] == 6
    assert batch["label"]["positives"].tolist() == [0, 0, 1, 1, 2, 2]
    assert len(positions(batch)) == 6
    known = batch["label"]["known"]
    assert known.tolist() == [
        [positions(batch)[column]] for column in batch["label"]["positives"].tolist()
    ]


def test_all_that_answers_a_query_is_known(tiny_model: MultiVectorEncoder) -> None:
    texts = {"a": "one", "b": "two", "c": "three"}
    examples = (Example("1", "q", ("b",), ()), Example("2", "r", ("a", "c"), ()))
    batch_maker = BatchMaker(
        tokenise_sets(tiny_model, [TrainingSet("set", texts, tuple(texts), examples, 0)]),
        negatives=1,
    )
    places = [row.examples[0] for row in batch_maker.rows]
    known = batch_maker.make_batch([places.index(0), places.index(1)])["label"]["known"]
    assert known.tolist() == [[1, -1], [0, 2]]


def test_a_teachers_scores_come_with_the_label(
    tokenised: TokenisedSets, training_set: TrainingSet
) -> None:
    example = training_set.examples[0]
    scores = {query_key(training_set, example): {"d7": 3.0, "d8": -1.0, "unknown": 9.0}}
    batch_maker = BatchMaker(tokenised, negatives=2, scores=scores)
    batch_maker.use_negatives({query_key(training_set, example): ["d7", "d8"]})
    row = next(
        n
        for n, row in enumerate(batch_maker.rows)
        if row.examples == (0,) and row.set_position == 0
    )
    taught = batch_maker.make_batch([row, row + 1])["label"]["teacher"]
    assert taught.shape == (2, 6)
    of_first = dict(
        zip(positions(batch_maker.make_batch([row, row + 1])), taught[0].tolist(), strict=True)
    )
    assert (of_first[7], of_first[8]) == (3.0, -1.0)
    assert taught[0].isneginf().sum() == 4
    assert taught[1].isneginf().all()
    assert "teacher" not in BatchMaker(tokenised, negatives=2).make_batch([0])["label"]


@given(documents=st.integers(1, 30), size=st.integers(1, 8), each=st.integers(1, 3), data=st.data())
def test_every_row_is_in_a_block(documents: int, size: int, each: int, data: st.DataObject) -> None:
    ids = [f"d{number}" for number in range(documents)]
    examples = tuple(
        Example(f"q{number}", "", (ids[number // each],), ()) for number in range(documents * each)
    )
    training_set = TrainingSet("set", dict.fromkeys(ids, ""), tuple(ids), examples, 0)
    mined = data.draw(
        st.lists(st.lists(st.sampled_from(ids), max_size=4), min_size=len(examples)).map(
            lambda lists: lists[: len(examples)]
        )
    )
    negatives = {
        query_key(training_set, one): found for one, found in zip(examples, mined, strict=True)
    }
    rows = make_rows([training_set], 1, 0)
    blocks = make_blocks(rows, training_set, negatives, size, 0)
    assert {len(block) for block in blocks} == {size}
    placed = [row for block in blocks for row in block]
    assert set(placed) == set(range(len(rows)))
    assert len(placed) - len(rows) < size, "only the last block is filled up"
    assert blocks == make_blocks(rows, training_set, negatives, size, 0)


def test_blocks_are_of_documents_mistaken_for_each_other() -> None:
    ids = tuple(f"d{number}" for number in range(64))
    examples = tuple(Example(f"q{number}", "", (id_,), ()) for number, id_ in enumerate(ids))
    training_set = TrainingSet("set", dict.fromkeys(ids, ""), ids, examples, 0)
    # Documents with the same remainder are mistaken for the next of them.
    negatives = {
        query_key(training_set, one): [ids[(number + 8) % 64]]
        for number, one in enumerate(examples)
    }
    rows = make_rows([training_set], 1, 0)
    for block in make_blocks(rows, training_set, negatives, 8, 0):
        assert len({int(rows[number].positive[1:]) % 8 for number in block}) == 1
