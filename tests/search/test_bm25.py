from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import document_text
from pseudoquery.index import Index
from pseudoquery.records import Document
from pseudoquery.search.bm25 import match_expression, rank_by_words
from pseudoquery.storage.tables import FULLTEXT_TOKENIZER
from tests.conftest import WORDS

TEXTS = [" ".join(WORDS.split()[start : start + 5 + start % 4]) for start in range(0, 40, 2)]


def test_ranks_as_an_index_does(tmp_path: Path, tiny_model: MultiVectorEncoder) -> None:
    index = Index.create(tmp_path / "index", model=tiny_model)
    documents = [
        Document(str(position), text, "king of titles" if position % 3 == 0 else "")
        for position, text in enumerate(TEXTS)
    ]
    index.add(documents)
    texts = [document_text(document)[0] for document in documents]
    queries = ["the king of the river", WORDS, "?!", "zzz unheard"]
    expected = index.rank_many(queries, 10, mode="bm25")
    for found, ranked in zip(rank_by_words(texts, queries, 10), expected, strict=True):
        assert [str(position) for position, _ in found] == [id_ for id_, _ in ranked]
        for (_, score), (_, other) in zip(found, ranked, strict=True):
            assert abs(score - other) < 1e-9


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=30), st.integers(1, 5))
def test_any_text_is_a_query(query: str, depth: int) -> None:
    (found,) = rank_by_words(TEXTS, [query], depth)
    assert len(found) <= depth
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)


def asked_of_sqlite(texts: list[str], query: str, depth: int) -> list[tuple[int, float]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            f"CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='{FULLTEXT_TOKENIZER}')"
        )
        connection.executemany("INSERT INTO texts(rowid, text) VALUES (?, ?)", enumerate(texts))
        return connection.execute(
            "SELECT rowid, -bm25(texts) FROM texts WHERE texts MATCH ? "
            "ORDER BY bm25(texts), rowid LIMIT ?",
            [match_expression(query) or '""', depth],
        ).fetchall()


# Few words, so that many texts share them; also such as are several words to SQLite, or none.
SOME = ["a", "A", "king", "kings", "König", "Konig", "snake_case", "snake", "_", "x\u0301", "²"]
ANY = st.lists(st.sampled_from(SOME) | st.text(max_size=3), max_size=8).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(st.lists(ANY, max_size=12), st.lists(ANY, max_size=3), st.integers(1, 6))
def test_ranks_and_scores_as_sqlite_does(texts: list[str], queries: list[str], depth: int) -> None:
    found = list(rank_by_words(texts, queries, depth))
    assert found == [asked_of_sqlite(texts, query, depth) for query in queries]
