"""Does a text contain an answer? The definition of DPR (Karpukhin et al., 2020).

Text and answer are cut into words and symbols, compared without case and after canonical
decomposition (NFD); the answer must occur as a run of whole tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

import regex

from pseudoquery.runs import Run

# A run of letters, digits and marks, or any other single visible character.
_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def words(text: str) -> list[str]:
    """Cut a text into tokens that can be compared."""
    # Each on its own: a final sigma has another small letter, and what follows must not decide.
    return [word.lower() for word in _TOKEN.findall(unicodedata.normalize("NFD", text))]


def contains(text: str, answers: Iterable[str]) -> bool:
    """Say whether one of the answers occurs in the text."""
    # With a mark that no token contains between all tokens, a run of tokens is a substring.
    haystack = _joined(text)
    return any(len(needle := _joined(answer)) > 1 and needle in haystack for answer in answers)


def top_accuracy(
    run: Run, texts: Mapping[str, str], answers: Mapping[str, tuple[str, ...]], top: int
) -> dict[str, float]:
    """For each query with answers: 1 if one of its best `top` documents contains one, else 0."""
    return {
        query: float(
            any(contains(texts[document], wanted) for document, _ in run.get(query, ())[:top])
        )
        for query, wanted in answers.items()
    }


@lru_cache(maxsize=65_536)
def _joined(text: str) -> str:
    return "\0" + "".join(f"{word}\0" for word in words(text))
