"""The few words that tell each pseudo query of a document from the document's other ones."""

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
"""Letters; a longer word is not more telling for it."""


def labels(text: str, spans: Sequence[Sequence[Span]]) -> list[str]:
    """Name each pseudo query, given its spans, by words that it has and the others have not.

    A word tells more the larger this pseudo query's part in its occurrences, the more often it
    occurs here, and the longer it is: the commonest words of a language are short.
    """
    found = _words(text, spans)
    everywhere: Counter[str] = sum(found, Counter())

    def label(words: Counter[str]) -> str:
        def telling(word: str) -> float:
            part = words[word] / everywhere[word]
            return part * math.log1p(words[word]) * min(len(word), LONG_WORD)

        best = sorted(words, key=telling, reverse=True)[:WORDS_IN_LABEL]
        return " · ".join(word for word in words if word in best)

    return [label(words) for words in found]


def _words(text: str, spans: Sequence[Sequence[Span]]) -> list[Counter[str]]:
    """Count each pseudo query's words, in the order of the text; its first letter's is the word."""
    owned = sorted((span.start, span.end, owner) for owner, own in enumerate(spans) for span in own)
    found: list[Counter[str]] = [Counter() for _ in spans]
    for match in WORD.finditer(text):
        place = bisect_right(owned, match.start(), key=lambda one: one[0]) - 1
        if place >= 0 and match.start() < owned[place][1]:
            found[owned[place][2]][match.group().casefold()] += 1
    return found
