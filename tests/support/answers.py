"""Questions, and what an index answers, for the tests of `Index`."""

from __future__ import annotations

from typing import Any

from pseudoquery.index import Index
from pseudoquery.records import Answer

QUERIES = ["who was the king of the city", "bird song", "the old house by the river?"]


def ids(answer: Answer) -> list[str]:
    return [hit.id for hit in answer.hits]


def results(index: Index, **how: Any) -> list[list[tuple[str, float]]]:
    answers = index.search_many(QUERIES, 100, **how)
    return [[(hit.id, hit.score) for hit in answer.hits] for answer in answers]
