"""Which passages of a document made its pseudo queries, and how each one matches a query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding import document_text, encode_queries, encode_texts
from pseudoquery.model import representation_of
from pseudoquery.records import Document, Explanation, PseudoQuery, Span
from pseudoquery.scores import attention, document_score

GAP = 1
"""Tokens of one pseudo query that are no further apart than this many characters join up."""


def explain(
    model: MultiVectorEncoder, query: str, document: Document, long: Any = "windows"
) -> Explanation:
    """Encode a document again, this time keeping track of which token went where."""
    settings = representation_of(model)
    text, start = document_text(document)
    encoded = encode_texts(model, [text], "document", long)[0]
    asked = encode_queries(model, [query])[0]
    dots = settings.scale * torch.from_numpy(asked @ encoded.vectors.T).double()
    if not len(encoded.vectors):
        return Explanation(query, document, float("-inf"), ())
    weights = attention(dots, settings.score).tolist()
    similarities = (dots.amax(dim=0) / settings.scale).tolist()
    pseudo_queries = [
        PseudoQuery(
            weight=weights[number],
            similarity=similarities[number],
            spans=_spans(encoded.spans[encoded.owners == number] - start, document.text),
        )
        for number in range(len(encoded.vectors))
    ]
    return Explanation(
        query,
        document,
        float(document_score(dots, settings.score)),
        tuple(sorted(pseudo_queries, key=lambda one: -one.weight)),
        _passage(document.text, pseudo_queries),
    )


def _passage(text: str, pseudo_queries: Sequence[PseudoQuery]) -> Span | None:
    """Find the sentence with the largest average weight."""
    weights = np.zeros(len(text) + 1)
    for pseudo_query in pseudo_queries:
        for span in pseudo_query.spans:
            weights[span.start + 1 : span.end + 1] = pseudo_query.weight
    running = np.cumsum(weights)
    sentences = [
        Span(*match.span()) for match in re.finditer(r"\S.*?(?:[.!?](?=\s)|$)", text, re.MULTILINE)
    ]
    return max(
        sentences,
        # A heading of a word or two should not win by its brevity.
        key=lambda one: (running[one.end] - running[one.start]) / max(one.end - one.start, 40),
        default=None,
    )


def _spans(tokens: NDArray[np.int64], text: str) -> tuple[Span, ...]:
    """Join the character spans of tokens that stand side by side; those of a title fall away."""
    joined: list[Span] = []
    for start, end in sorted(np.clip(tokens, 0, len(text)).tolist()):
        if start == end:
            continue
        between = text[joined[-1].end : start] if joined else ""
        # What stands between may be a token of another pseudo query, even if it is one letter.
        if joined and len(between) <= GAP and not between.strip():
            joined[-1] = Span(joined[-1].start, max(end, joined[-1].end))
        else:
            joined.append(Span(start, end))
    return tuple(joined)
