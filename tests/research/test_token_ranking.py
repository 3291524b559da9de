from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.index import Index
from pseudoquery.method.token_codes import TokenType
from pseudoquery.research.token_ranking import bytes_per_document, rank_again, score_tokens
from pseudoquery.search.settings import SearchSettings
from pseudoquery.training.validation import Rankings, make_validation_set, rank_queries
from tests.support.collection import write_collection


@given(
    st.integers(1, 12).flatmap(
        lambda count: st.tuples(
            st.permutations(range(count)),
            st.lists(st.integers(-3, 3), min_size=count, max_size=count),
            st.integers(0, 14),
        )
    )
)
def test_the_best_are_ranked_again_and_the_rest_follows(
    drawn: tuple[list[int], list[int], int],
) -> None:
    order, scores, candidates = drawn
    first = Rankings(np.array([order]), np.zeros((1, len(order)), dtype=np.float32), 4.0)
    table = np.array([scores], dtype=np.float32)
    found = rank_again(first, table, candidates)
    if candidates:
        best = sorted(order[:candidates], key=lambda document: -scores[document])
        assert found.positions[0].tolist() == best + order[candidates:]
        assert found.scores[0, : len(best)].tolist() == [scores[document] for document in best]
        assert np.isneginf(found.scores[0, candidates:]).all()
    else:
        best = sorted(range(len(order)), key=lambda document: -scores[document])
        assert found.positions[0].tolist() == best
    assert first.positions[0].tolist() == order, "the first ranking stays as it is"


@pytest.mark.parametrize(("form", "stored"), [("signs", "signs"), ("floats", "float16")])
def test_the_ranking_is_that_of_an_index_with_token_codes(
    tmp_path: Path, tiny_model: MultiVectorEncoder, form: str, stored: TokenType
) -> None:
    """Up to what an index rounds: a document may change places with one that scores alike."""
    dataset = load_dataset(str(write_collection(tmp_path / "set")), "dev")
    index = Index.create(tmp_path / "index", model=tiny_model, vector_type="float32", tokens=stored)
    index.add(dataset.documents())
    validation_set = make_validation_set(tiny_model, dataset)
    scores = score_tokens(tiny_model, validation_set)
    table = scores.tables["signs" if form == "signs" else "floats"]
    ids = [document.id for document in dataset.documents()]
    by_tokens = SearchSettings(vector_share=0.0)
    for row, query in enumerate(dataset.queries):
        tokens = len(tiny_model.tokenizer(query.text)["input_ids"]) - 2
        for hit in index.search(query.text, top=len(ids), settings=by_tokens).hits:
            expected = table[row, ids.index(hit.id)] / tokens
            assert hit.score == pytest.approx(float(expected), abs=0.02)
    first = rank_queries(tiny_model, validation_set)
    ranked = rank_again(first, table, 12)
    assert sorted(ranked.positions[0].tolist()) == sorted(first.positions[0].tolist())
    words = [
        len(tiny_model.tokenizer(document.text)["input_ids"]) - 2
        for document in dataset.documents()
    ]
    assert scores.tokens == pytest.approx(np.mean(words))


def test_bytes() -> None:
    assert bytes_per_document(16.0, 600.0, 384, "none") == 16 * 768
    assert bytes_per_document(16.0, 600.0, 384, "signs") == 16 * 768 + 600 * 48
    assert bytes_per_document(0.0, 600.0, 384, "floats") == 600 * 768
