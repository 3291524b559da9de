"""Hard negatives: documents that are ranked high for a query, and are wrong.

The first ones can come from BM25; later ones from the model in training, by its own vectors and its
own score, so that it learns from what it would get wrong now (ANCE).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding import Long, Task, encode_texts
from pseudoquery.exhaustive import rank_all
from pseudoquery.hybrid import match_expression
from pseudoquery.model import representation_of
from pseudoquery.store import FULLTEXT_TOKENIZER
from pseudoquery.triples import Example, Lesson, Negatives, hard_negatives

TEXTS_AT_ONCE = 1024
MARGIN = 10
"""Positives and documents with the answer fall out, so more are ranked than are kept."""


def negatives_key(own: Lesson, example: Example) -> str:
    """Name a query among those of all lessons."""
    return f"{own.name} {example.query_id}"


def mine(model: MultiVectorEncoder, lessons: Iterable[Lesson], depth: int) -> Negatives:
    """Rank every lesson's documents by the model's own score; keep the best wrong ones."""
    negatives: dict[str, list[str]] = {}
    for own in lessons:
        ids = list(own.texts)
        documents = encode_all(model, list(own.texts.values()), "document")
        queries = encode_all(model, [example.query for example in own.examples], "query")
        places, _ = rank_all(
            queries, documents, representation_of(model), 2 * depth + MARGIN, model.device
        )
        for example, best in zip(own.examples, places, strict=True):
            ranked = (ids[place] for place in best)
            kept = hard_negatives(example, ranked, own.texts, depth)
            negatives[negatives_key(own, example)] = kept
    return negatives


def mine_by_words(lessons: Iterable[Lesson], depth: int) -> Negatives:
    """Rank every lesson's documents by BM25, as the index does; keep the best wrong ones."""
    negatives: dict[str, list[str]] = {}
    for own in lessons:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(
                f"CREATE VIRTUAL TABLE texts USING fts5(id UNINDEXED, text, "
                f"tokenize='{FULLTEXT_TOKENIZER}')"
            )
            connection.executemany("INSERT INTO texts VALUES (?, ?)", own.texts.items())
            for example in own.examples:
                found = connection.execute(
                    "SELECT id FROM texts WHERE texts MATCH ? ORDER BY bm25(texts), rowid LIMIT ?",
                    [match_expression(example.query) or '""', 2 * depth + MARGIN],
                )
                ranked = (row[0] for row in found.fetchall())
                kept = hard_negatives(example, ranked, own.texts, depth)
                negatives[negatives_key(own, example)] = kept
    return negatives


def encode_all(
    model: MultiVectorEncoder, texts: Sequence[str], task: Task, long: Long = "truncate"
) -> list[NDArray[np.float32]]:
    """Encode many texts; of long ones only the beginning, as in training, unless asked for."""
    return [
        encoded.vectors
        for start in range(0, len(texts), TEXTS_AT_ONCE)
        for encoded in encode_texts(model, texts[start : start + TEXTS_AT_ONCE], task, long)
    ]
