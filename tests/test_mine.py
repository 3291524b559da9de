from __future__ import annotations

from pathlib import Path

import pytest
from collection import write_collection
from sentence_transformers import MultiVectorEncoder

from pseudoquery.datasets import load_dataset
from pseudoquery.index import Index
from pseudoquery.mine import mine, mine_by_words, negatives_key
from pseudoquery.triples import Lesson, hard_negatives, lesson


@pytest.fixture
def own(tmp_path: Path) -> Lesson:
    return lesson(load_dataset(str(write_collection(tmp_path / "set", answers=True)), "train"))


def expected(own: Lesson, index: Index, mode: str, depth: int) -> dict[str, list[str]]:
    """Rank with the index itself, and keep what is wrong."""
    queries = [example.query for example in own.examples]
    rankings = index.rank_many(queries, 100, mode=mode, exact=True)  # type: ignore[arg-type]
    return {
        negatives_key(own, example): hard_negatives(
            example, (id_ for id_, _ in ranking), own.texts, depth
        )
        for example, ranking in zip(own.examples, rankings, strict=True)
    }


def test_mining_is_what_the_index_would_find(
    own: Lesson, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    index = Index.create(tmp_path / "index", model=tiny_model, vector_type="float32")
    dataset = load_dataset(str(tmp_path / "set"), "train")
    index.add(dataset.documents())
    assert mine(tiny_model, [own], 5) == expected(own, index, "dense", 5)
    assert mine_by_words([own], 5) == expected(own, index, "bm25", 5)


def test_neither_positives_nor_documents_with_the_answer(
    own: Lesson, tiny_model: MultiVectorEncoder
) -> None:
    for negatives in (mine(tiny_model, [own], 12), mine_by_words([own], 12)):
        assert len(negatives) == len(own.examples)
        for example in own.examples:
            found = negatives[negatives_key(own, example)]
            assert not set(found) & set(example.positives)
            assert not any(example.answers[0] in own.texts[id_] for id_ in found)
    assert all(len(one) == 10 for one in mine(tiny_model, [own], 12).values()), "12 but for two"


def test_a_query_without_words_has_no_negatives_by_words(own: Lesson) -> None:
    from dataclasses import replace

    silent = replace(own, examples=(replace(own.examples[0], query="?!"),))
    assert list(mine_by_words([silent], 3).values()) == [[]]
