"""Why a document matches a question: its pseudo queries, its words, and the passage that counts.

All of it is computed from what an index stores, so that no document is encoded again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pseudoquery.method.encoded import DocumentVectors, QuestionVectors
from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import attention, document_score
from pseudoquery.method.token_codes import TokenType, token_dots
from pseudoquery.records import Document, Explanation, PseudoQuery, Span, WordMatch

GAP = 1
"""Tokens of one pseudo query that are no further apart than this many characters join up."""
SENTENCE = re.compile(r"\S.*?(?:[.!?](?=\s)|$)", re.MULTILINE)
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """A document, and what the encoder has made of it."""

    document: Document
    encoded: DocumentVectors
    token_type: TokenType
    start: int
    """Where the document's text begins in the text that was encoded, which has its title first."""

    @property
    def spans(self) -> NDArray[np.int64]:
        """(tokens, 2): where each token stands in the document's text; before it, in the title."""
        return self.encoded.spans - self.start


def explain(
    query: str, question: QuestionVectors, encoded: EncodedDocument, settings: Representation
) -> Explanation:
    """Compare a question with a document, and say which parts of the two match."""
    document, vectors = encoded.document, encoded.encoded.vectors
    if not len(vectors):
        return Explanation(query, document, float("-inf"), ())
    dots = settings.scale * torch.from_numpy(question.vectors @ vectors.T).double()
    weights = attention(dots, settings.score).tolist()
    similarities = (dots.amax(dim=0) / settings.scale).tolist()
    pseudo_queries = [
        PseudoQuery(*facts)
        for facts in zip(weights, similarities, pseudo_query_spans(encoded), strict=True)
    ]
    matches: tuple[WordMatch, ...] = ()
    token_score, passage = None, _likely_passage(encoded, np.array(similarities))
    if encoded.token_type != "none" and len(question.tokens) and len(encoded.encoded.codes):
        token_matches = token_dots(encoded.token_type, question.tokens, encoded.encoded.codes)
        token_score = float(token_matches.max(axis=0).mean())
        matches = _match_words(query, question, encoded, token_matches)
        passage = _best_passage(encoded, token_matches)
    return Explanation(
        query,
        document,
        float(document_score(dots, settings.score)),
        tuple(sorted(pseudo_queries, key=lambda pseudo_query: -pseudo_query.weight)),
        passage,
        matches,
        token_score,
    )


def pseudo_query_spans(encoded: EncodedDocument) -> list[tuple[Span, ...]]:
    """List, for each of a document's vectors, the stretches of the text that it was made of."""
    spans, owners = encoded.spans, encoded.encoded.owners
    return [
        _join_spans(spans[owners == row], encoded.document.text)
        for row in range(len(encoded.encoded.vectors))
    ]


def _match_words(
    query: str,
    question: QuestionVectors,
    encoded: EncodedDocument,
    dots: NDArray[np.float64],
) -> tuple[WordMatch, ...]:
    """Find the words of the document that each word of the question matches best."""
    text, spans = encoded.document.text, encoded.spans
    best, similarity = dots.argmax(axis=0), dots.max(axis=0)
    words = [Span(*word.span()) for word in WORD.finditer(query)]
    starts = [word.start for word in words]
    owners = np.searchsorted(starts, question.spans[:, 0], side="right") - 1
    # The tokens of a model's prompt stand nowhere in the question.
    owners[question.spans[:, 0] == question.spans[:, 1]] = -1
    matches = []
    for number, word in enumerate(words):
        tokens = np.flatnonzero(owners == number)
        if len(tokens):
            matched = {_whole_word(text, *spans[best[token]].tolist()) for token in tokens}
            in_text = sorted((span for span in matched if span), key=lambda span: span.start)
            matches.append(WordMatch(word, float(similarity[tokens].mean()), tuple(in_text)))
    return tuple(matches)


def _whole_word(text: str, start: int, end: int) -> Span | None:
    """Return the word of the text that a token is a part of; None for a token of the title."""
    if start < 0 or start >= min(end, len(text)):
        return None
    while start > 0 and text[start - 1 : start + 1].isalnum():
        start -= 1
    while end < len(text) and text[end - 1 : end + 1].isalnum():
        end += 1
    return Span(start, end)


def _sentences(encoded: EncodedDocument) -> tuple[list[Span], NDArray[np.int64]]:
    """Return the sentences of a text, and which of them each token stands in, or -1."""
    sentences = [Span(*match.span()) for match in SENTENCE.finditer(encoded.document.text)]
    starts = [sentence.start for sentence in sentences]
    spans = encoded.spans
    owners = np.searchsorted(starts, spans[:, 0], side="right") - 1
    return sentences, np.where((spans[:, 0] >= 0) & (spans[:, 1] > spans[:, 0]), owners, -1)


def _best_passage(encoded: EncodedDocument, dots: NDArray[np.float64]) -> Span | None:
    """Find the sentence that scores best by itself."""
    sentences, owners = _sentences(encoded)
    order = np.flatnonzero(owners >= 0)
    if not len(order):
        return None
    order = order[np.argsort(owners[order], kind="stable")]
    numbers, starts = np.unique(owners[order], return_index=True)
    scores = np.maximum.reduceat(dots[order], starts, axis=0).sum(axis=1)
    return sentences[int(numbers[np.argmax(scores)])]


def _likely_passage(encoded: EncodedDocument, similarities: NDArray[np.float64]) -> Span | None:
    """Find the sentence whose tokens belong to pseudo queries that match, without their codes."""
    sentences, owners = _sentences(encoded)
    pseudo_queries = encoded.encoded.owners
    inside = (owners >= 0) & (pseudo_queries >= 0)
    if not inside.any():
        return None
    counts = np.bincount(owners[inside], minlength=len(sentences))
    sums = np.bincount(owners[inside], similarities[pseudo_queries[inside]], len(sentences))
    return sentences[int(np.argmax(np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)))]


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
