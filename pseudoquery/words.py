"""BM25 over texts in memory, with the same SQLite full text as an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from pseudoquery.hybrid import match_expression
from pseudoquery.store import FULLTEXT_TOKENIZER


def rank_by_words(
    texts: Iterable[str], queries: Sequence[str], depth: int
) -> Iterator[list[tuple[int, float]]]:
    """For each query, yield the places and scores of the best texts that share a word with it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            f"CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='{FULLTEXT_TOKENIZER}')"
        )
        connection.executemany("INSERT INTO texts(rowid, text) VALUES (?, ?)", enumerate(texts))
        for query in queries:
            found = connection.execute(
                "SELECT rowid, -bm25(texts) FROM texts WHERE texts MATCH ? "
                "ORDER BY bm25(texts), rowid LIMIT ?",
                [match_expression(query) or '""', depth],
            )
            yield found.fetchall()
