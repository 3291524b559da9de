from __future__ import annotations

from pathlib import Path

from conftest import WORDS
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding import document_text
from pseudoquery.index import Index
from pseudoquery.records import Document
from pseudoquery.words import rank_by_words

TEXTS = [" ".join(WORDS.split()[start : start + 5 + start % 4]) for start in range(0, 40, 2)]


def test_ranks_as_an_index_does(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    index = Index.create(tmp_path / "index", model=tiny_model)
    documents = [
        Document(str(place), text, "king of titles" if place % 3 == 0 else "")
        for place, text in enumerate(TEXTS)
    ]
    index.add(documents)
    texts = [document_text(document)[0] for document in documents]
    queries = ["the king of the river", WORDS, "?!", "zzz unheard"]
    expected = index.rank_many(queries, 10, mode="bm25")
    for found, ranked in zip(rank_by_words(texts, queries, 10), expected, strict=True):
        assert [str(place) for place, _ in found] == [id_ for id_, _ in ranked]
        for (_, score), (_, other) in zip(found, ranked, strict=True):
            assert abs(score - other) < 1e-9


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=30), st.integers(1, 5))
def test_any_text_is_a_query(query: str, depth: int) -> None:
    (found,) = rank_by_words(TEXTS, [query], depth)
    assert len(found) <= depth
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
