"""Records for the tests of commands, and what an index holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pseudoquery.index import Index

WORDS = ["river", "city", "king", "queen", "war", "peace", "music", "song", "book", "water", "fire"]


RECORDS: list[dict[str, Any]] = [
    {
        "id": f"id {number}",
        "title": f"{WORDS[number % 11]} history" if number % 2 else "",
        "text": " ".join(WORDS[(number * step) % 11] for step in range(1, 9)) + f" {number}",
        "year": 1990 + number,
        "topic": WORDS[number % 3],
    }
    for number in range(40)
]


def content(folder: Path) -> Any:
    """Read all that an index holds."""
    opened = Index.open(folder)
    answer = opened.search("the king of the city", 100)
    return list(opened.documents()), [(hit.id, hit.score) for hit in answer.hits]
