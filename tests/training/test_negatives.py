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
def own(tmp_path: Path) -> TrainingSet:
    return make_training_set(
        load_dataset(str(write_collection(tmp_path / "set", answers=True)), "train")
    )


def expected(own: TrainingSet, index: Index, mode: str, depth: int) -> dict[str, list[str]]:
    """Rank with the index itself, and keep what is wrong."""
    queries = [example.query for example in own.examples]
    rankings = index.rank_many(queries, 100, mode=mode, exact=True)  # type: ignore[arg-type]
    return {
        query_key(own, example): select_hard_negatives(
            example, (id_ for id_, _ in ranking), own.texts, depth
        )
        for example, ranking in zip(own.examples, rankings, strict=True)
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
    own = make_training_set(replace(dataset, documents=lambda: iter(documents)))
    index = Index.create(tmp_path / "index", model=tiny_model, vector_type="float32")
    index.add(documents)
    mined = mine(tiny_model, tokenise_sets(tiny_model, [own]), 5)
    assert mined == expected(own, index, "dense", 5)
    assert mine_by_words([own], 5) == expected(own, index, "bm25", 5)


def test_neither_positives_nor_documents_with_the_answer(
    own: TrainingSet, tiny_model: MultiVectorEncoder
) -> None:
    by_model = mine(tiny_model, tokenise_sets(tiny_model, [own]), 12)
    for negatives in (by_model, mine_by_words([own], 12)):
        assert len(negatives) == len(own.examples)
        for example in own.examples:
            found = negatives[query_key(own, example)]
            assert not set(found) & set(example.positives)
            assert not any(example.answers[0] in own.texts[id_] for id_ in found)
    assert all(len(one) == 10 for one in by_model.values()), "12 but for two"


def test_a_query_without_words_has_no_negatives_by_words(own: TrainingSet) -> None:
    silent = replace(own, examples=(replace(own.examples[0], query="?!"),))
    assert list(mine_by_words([silent], 3).values()) == [[]]


def test_each_lesson_is_mined_in_its_own_documents(
    own: TrainingSet, tiny_model: MultiVectorEncoder
) -> None:
    other = replace(
        own,
        name="other",
        texts={f"x{id_}": text for id_, text in own.texts.items()},
        ids=tuple(f"x{id_}" for id_ in own.ids),
        examples=tuple(
            replace(one, positives=tuple(f"x{id_}" for id_ in one.positives))
            for one in own.examples
        ),
    )
    alone = mine(tiny_model, tokenise_sets(tiny_model, [own]), 3)
    both = mine(tiny_model, tokenise_sets(tiny_model, [own, other]), 3)
    for example, again in zip(own.examples, other.examples, strict=True):
        found = alone[query_key(own, example)]
        assert both[query_key(own, example)] == found
        assert both[query_key(other, again)] == [f"x{id_}" for id_ in found]
