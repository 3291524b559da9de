"""Whether a text contains an answer, as DPR defines it (Karpukhin et al., 2020).

Text and answer are cut into words and symbols, and compared without case, after canonical
decomposition (NFD). The answer has to occur as a run of whole tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

import regex

from pseudoquery.evaluation.trec_runs import Run

# A run of letters, digits and marks, or any other single visible character.
_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Say whether a text contains one of the answers.

    >>> contains_answer("He was born in New York.", ["Boston", "new york"])
    True
    >>> contains_answer("The Yorkshire moors", ["York"])
    False
    """
    # Mining calls this millions of times, so it is a substring search in a text prepared once.
    haystack = _join_text(text)
    for answer in answers:
        needle = _join_answer(answer)
        if needle in haystack and needle != _NO_TOKENS:
            return True
    return False


def top_accuracy(
    run: Run, texts: Mapping[str, str], answers: Mapping[str, tuple[str, ...]], top: int
) -> dict[str, float]:
    """Return, for each query, 1 if one of its best `top` documents contains an answer, else 0."""
    return {
        query: float(
            any(
                contains_answer(texts[document], wanted) for document, _ in run.get(query, ())[:top]
            )
        )
        for query, wanted in answers.items()
    }


def _join_tokens(text: str) -> str:
    """Join the tokens by a mark that none of them contains: a run of tokens is then a substring."""
    tokens = _TOKEN.findall(unicodedata.normalize("NFD", text))
    # Lowered all at once, yet as if each token stood alone: the lower case of a capital sigma
    # depends on the letters around it, but not on those beyond the mark.
    return "\0".join(["", *tokens, ""]).lower()


_NO_TOKENS = "\0"
"""What a text without tokens is joined to."""

# An answer is looked for in many texts in a row, and a text comes back whenever it is ranked high.
# Each has a cache of its own, so that answers don't drive texts out.
_join_text = lru_cache(maxsize=65_536)(_join_tokens)
_join_answer = lru_cache(maxsize=4_096)(_join_tokens)
