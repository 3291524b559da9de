from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sentence_transformers import MultiVectorEncoder

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.index import Index
from pseudoquery.training.batches import tokenise_sets
from pseudoquery.training.examples import TrainingSet, make_training_set, query_key
from pseudoquery.training.mine import mine, mine_by_words
from pseudoquery.training.negatives import select_hard_negatives
from tests.support.collection import write_collection


@pytest.fixture
def training_set(tmp_path: Path) -> TrainingSet:
    return make_training_set(
        load_dataset(str(write_collection(tmp_path / "set", answers=True)), "train")
    )


def expected(
    training_set: TrainingSet, index: Index, mode: str, depth: int
) -> dict[str, list[str]]:
    """Rank with the index itself, and keep what is wrong."""
    queries = [example.query for example in training_set.examples]
    rankings = index.rank_many(queries, 100, mode=mode, exact=True)  # type: ignore[arg-type]
    return {
        query_key(training_set, example): select_hard_negatives(
            example, (id_ for id_, _ in ranking), training_set.texts, depth
        )
        for example, ranking in zip(training_set.examples, rankings, strict=True)
    }


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
def test_mining_is_what_the_index_would_find(
    tmp_path: Path, tiny_model: MultiVectorEncoder, long: bool
) -> None:
    dataset = load_dataset(str(write_collection(tmp_path / "set", answers=True)), "train")
    documents = list(dataset.documents())
    if long:  # what tells them apart comes after the first window
        filler = "who had not seen it on that day " * 12
        documents = [replace(one, text=filler + one.text) for one in documents]
    training_set = make_training_set(replace(dataset, documents=lambda: iter(documents)))
    index = Index.create(tmp_path / "index", model=tiny_model, vector_type="float32", tokens="none")
    index.add(documents)
    mined = mine(tiny_model, tokenise_sets(tiny_model, [training_set]), 5)
    assert mined == expected(training_set, index, "dense", 5)
    assert mine_by_words([training_set], 5) == expected(training_set, index, "bm25", 5)


def test_neither_positives_nor_documents_with_the_answer(
    training_set: TrainingSet, tiny_model: MultiVectorEncoder
) -> None:
    by_model = mine(tiny_model, tokenise_sets(tiny_model, [training_set]), 12)
    for negatives in (by_model, mine_by_words([training_set], 12)):
        assert len(negatives) == len(training_set.examples)
        for example in training_set.examples:
            found = negatives[query_key(training_set, example)]
            assert not set(found) & set(example.positives)
            assert not any(example.answers[0] in training_set.texts[id_] for id_ in found)
    assert all(len(one) == 10 for one in by_model.values()), "12 but for two"


def test_a_query_without_words_has_no_negatives_by_words(training_set: TrainingSet) -> None:
    silent = replace(training_set, examples=(replace(training_set.examples[0], query="?!"),))
    assert list(mine_by_words([silent], 3).values()) == [[]]


def test_each_lesson_is_mined_in_its_own_documents(
    training_set: TrainingSet, tiny_model: MultiVectorEncoder
) -> None:
    other = replace(
        training_set,
        name="other",
        texts={f"x{id_}": text for id_, text in training_set.texts.items()},
        ids=tuple(f"x{id_}" for id_ in training_set.ids),
        examples=tuple(
            replace(one, positives=tuple(f"x{id_}" for id_ in one.positives))
            for one in training_set.examples
        ),
    )
    alone = mine(tiny_model, tokenise_sets(tiny_model, [training_set]), 3)
    both = mine(tiny_model, tokenise_sets(tiny_model, [training_set, other]), 3)
    for example, again in zip(training_set.examples, other.examples, strict=True):
        found = alone[query_key(training_set, example)]
        assert both[query_key(training_set, example)] == found
        assert both[query_key(other, again)] == [f"x{id_}" for id_ in found]
