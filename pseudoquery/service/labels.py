"""A few words that set each pseudo query of a document apart from the document's other ones."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from pseudoquery.records import Span

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
WORDS_IN_LABEL = 3
LONG_WORD = 8
"""Letters; a word that is longer than this says no more for it."""


def labels(text: str, spans: Sequence[Sequence[Span]]) -> list[str]:
    """Name each pseudo query, given its spans, by words that it has and the others have not.

    A word says more about a pseudo query the larger its share in the word's occurrences, the more
    often the word occurs in it, and the longer the word is: common words are short.
    """
    counts = _count_words(text, spans)
    everywhere: Counter[str] = sum(counts, Counter())

    def label(words: Counter[str]) -> str:
        def distinctness(word: str) -> float:
            share = words[word] / everywhere[word]
            return share * math.log1p(words[word]) * min(len(word), LONG_WORD)

        best = sorted(words, key=distinctness, reverse=True)[:WORDS_IN_LABEL]
        return " · ".join(word for word in words if word in best)

    return [label(words) for words in counts]


def _count_words(text: str, spans: Sequence[Sequence[Span]]) -> list[Counter[str]]:
    """Count each pseudo query's words, in the order of the text. A word belongs to the pseudo query
    that its first letter belongs to.
    """
    owned = sorted(
        (span.start, span.end, owner) for owner, stretches in enumerate(spans) for span in stretches
    )
    counts: list[Counter[str]] = [Counter() for _ in spans]
    for match in WORD.finditer(text):
        position = bisect_right(owned, match.start(), key=lambda stretch: stretch[0]) - 1
        if position >= 0 and match.start() < owned[position][1]:
            counts[owned[position][2]][match.group().casefold()] += 1
    return counts
