"""Does a text contain an answer? The definition of DPR (Karpukhin et al., 2020).

Text and answer are cut into words and symbols, compared without case and after canonical
decomposition (NFD); the answer must occur as a run of whole tokens.
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
    """Say whether one of the answers occurs in the text.

    Mining asks this millions of times, so it is one substring search in a text prepared before.
    """
    haystack = _text(text)
    for answer in answers:
        needle = _answer(answer)
        if needle in haystack and needle != _NOTHING:
            return True
    return False


def top_accuracy(
    run: Run, texts: Mapping[str, str], answers: Mapping[str, tuple[str, ...]], top: int
) -> dict[str, float]:
    """For each query with answers: 1 if one of its best `top` documents contains one, else 0."""
    return {
        query: float(
            any(
                contains_answer(texts[document], wanted) for document, _ in run.get(query, ())[:top]
            )
        )
        for query, wanted in answers.items()
    }


def _joined(text: str) -> str:
    """Join the tokens by a mark that none of them contains: a run of tokens is then a substring."""
    tokens = _TOKEN.findall(unicodedata.normalize("NFD", text))
    # All at once, yet each token on its own: how a capital sigma is lowered depends on the letters
    # around it, but not across the mark.
    return "\0".join(["", *tokens, ""]).lower()


_NOTHING = "\0"
"""What is left of a text without tokens."""

# An answer is asked for again and again in a row, a text whenever it is ranked high again: each has
# its own room, so that answers don't drive texts out.
_text = lru_cache(maxsize=65_536)(_joined)
_answer = lru_cache(maxsize=4_096)(_joined)
