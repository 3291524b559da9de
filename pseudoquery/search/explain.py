"""Which passages of a document made its pseudo queries, and how each one matches a query."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import (
    Encoded,
    Reading,
    document_text,
    encode_queries,
    pool_texts,
    read_texts,
)
from pseudoquery.encoding.model import representation_of
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.method.scores import attention, document_score
from pseudoquery.records import Document, Explanation, PseudoQuery, Span

GAP = 1
"""Tokens of one pseudo query that are no further apart than this many characters join up."""


def explain(
    model: MultiVectorEncoder, query: str, document: Document, long: Any = "windows"
) -> Explanation:
    """Encode a document again, and keep track of which vector each token went into."""
    settings = representation_of(model)
    text, start = document_text(document)
    reading = read_texts(model, [text], "document", long)
    encoded = pool_texts(pooling_of(model), reading, "document")[0]
    query_vectors = encode_queries(model, [query])[0]
    dots = settings.scale * torch.from_numpy(query_vectors @ encoded.vectors.T).double()
    if not len(encoded.vectors):
        return Explanation(query, document, float("-inf"), ())
    weights = attention(dots, settings.score).tolist()
    similarities = (dots.amax(dim=0) / settings.scale).tolist()
    pseudo_queries = [
        PseudoQuery(*facts)
        for facts in zip(weights, similarities, passages(encoded, document), strict=True)
    ]
    return Explanation(
        query,
        document,
        float(document_score(dots, settings.score)),
        tuple(sorted(pseudo_queries, key=lambda pseudo_query: -pseudo_query.weight)),
        _find_passage(
            document.text, reading, query_vectors, start, encoded.owners == np.argmax(weights)
        ),
    )


def passages(encoded: Encoded, document: Document) -> list[tuple[Span, ...]]:
    """List, for each of a document's vectors, the stretches of the text that it was made of."""
    _, start = document_text(document)
    return [
        _join_spans(encoded.spans[encoded.owners == row] - start, document.text)
        for row in range(len(encoded.vectors))
    ]


def _find_passage(
    text: str,
    reading: Reading,
    query: NDArray[np.float32],
    start: int,
    winning: NDArray[np.bool_],
) -> Span | None:
    """Find the sentence whose tokens, averaged, are nearest to the query.

    It has one of the winning pseudo query's tokens, unless these are all of the title.
    """
    sentences = [
        Span(*match.span()) for match in re.finditer(r"\S.*?(?:[.!?](?=\s)|$)", text, re.MULTILINE)
    ]
    if not sentences:
        return None
    tokens = reading.tokens[0].embeddings.float().cpu().numpy()
    tokens = tokens[reading.points[0]] if reading.points else tokens
    spans = reading.spans[0] - start
    starts = [sentence.start for sentence in sentences]
    owners = np.searchsorted(starts, spans[:, 0], side="right") - 1
    inside = (spans[:, 1] > spans[:, 0]) & (spans[:, 0] >= 0) & (owners >= 0)
    sums = np.zeros((len(sentences), tokens.shape[1]))
    np.add.at(sums, owners[inside], tokens[inside])
    lengths = np.linalg.norm(sums, axis=1)
    similarity = sums @ query.mean(axis=0) / np.where(lengths > 0, lengths, np.inf)
    winners = np.bincount(owners[inside & winning], minlength=len(sentences)) > 0
    eligible = winners if winners.any() else lengths > 0
    return sentences[int(np.argmax(np.where(eligible, similarity, -np.inf)))]


def _join_spans(tokens: NDArray[np.int64], text: str) -> tuple[Span, ...]:
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
