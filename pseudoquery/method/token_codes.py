"""The vectors of a document's tokens in few bytes, and how a question is compared with them.

The score of a document is late interaction's MaxSim: each token of the question takes its largest
dot product with any token of the document, and the score is the mean of these.

With "signs", a number of a token's vector is one bit: whether it is positive. The token then stands
for the vector of length 1 with these signs. The question's numbers are rounded to integers from
-31 to 31, so that every dot product is an integer: the same on every machine, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import DocumentVectors
from pseudoquery.native.signs import LARGEST_VALUE, max_dots, pack_signs, unpack_signs

TokenType = Literal["none", "signs", "int8", "float16"]
TOKEN_TYPES: tuple[str, ...] = get_args(TokenType)
LARGEST_INT8 = 127
AT_ONCE = 1 << 16
"""Tokens that are brought to single precision at once."""
SCALE_BYTES = 4
"""A token in 8 bits ends with the length of its steps, in single precision."""


def default_token_type(documents: DocumentVectors) -> TokenType:
    """Return how tokens are stored unless one says otherwise, for documents represented so."""
    return "signs" if documents == "pseudo-queries" else "none"


def bytes_per_token(token_type: TokenType, dimension: int) -> int:
    """Return how many bytes a token's code has."""
    match token_type:
        case "none":
            return 0
        case "signs":
            return -(-dimension // 8)
        case "int8":
            return dimension + SCALE_BYTES
        case "float16":
            return 2 * dimension


def pack_tokens(token_type: TokenType, tokens: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Write the vectors of a document's tokens (tokens, dim) as bytes."""
    match token_type:
        case "none":
            return np.zeros(0, dtype=np.uint8)
        case "signs":
            return pack_signs(tokens)
        case "int8":
            unit = _unit(tokens)
            scales = np.abs(unit).max(axis=1, initial=0.0, keepdims=True) / LARGEST_INT8
            steps = np.rint(unit / np.where(scales > 0, scales, 1)).astype(np.int8)
            rows = np.hstack([steps.view(np.uint8), scales.astype(np.float32).view(np.uint8)])
            return rows.ravel()
        case "float16":
            return _unit(tokens).astype(np.float16).view(np.uint8).ravel()


def unpack_tokens(
    token_type: TokenType, codes: NDArray[np.uint8], dimension: int
) -> NDArray[np.float32]:
    """Read what `pack_tokens` has written: vectors of length 1, (tokens, dim)."""
    match token_type:
        case "none":
            return np.zeros((0, dimension), dtype=np.float32)
        case "signs":
            count = len(codes) // bytes_per_token("signs", dimension)
            signs = unpack_signs(codes, count, dimension).astype(np.float32)
            return signs / np.float32(dimension**0.5)
        case "int8":
            rows = codes.reshape(-1, dimension + SCALE_BYTES)
            scales = np.ascontiguousarray(rows[:, dimension:]).view(np.float32)
            return np.ascontiguousarray(rows[:, :dimension]).view(np.int8) * scales
        case "float16":
            return codes.view(np.float16).reshape(-1, dimension).astype(np.float32)


def join_codes(
    token_type: TokenType, parts: Sequence[NDArray[np.uint8]], dimension: int
) -> NDArray[np.uint8]:
    """Join the codes of one document that was packed in parts."""
    if token_type == "signs":
        columns = bytes_per_token("signs", dimension)
        return np.concatenate([part.reshape(columns, -1) for part in parts], axis=1).ravel()
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class RoundedQuestion:
    """The tokens of a question as integers, all in steps of one length."""

    values: NDArray[np.int8]
    """(tokens, dim): from -31 to 31"""
    step: float
    """What the integers are multiplied by."""


def round_question(tokens: NDArray[np.float32]) -> RoundedQuestion:
    """Round the tokens of a question (tokens, dim) to integers."""
    largest = float(np.abs(tokens).max(initial=0.0))
    if largest == 0.0:
        return RoundedQuestion(np.zeros(tokens.shape, dtype=np.int8), 0.0)
    step = largest / LARGEST_VALUE
    values = np.rint(tokens.astype(np.float64) / step)
    return RoundedQuestion(values.astype(np.int8), step)


@dataclass(frozen=True, slots=True)
class PackedDocuments:
    """The codes of documents that lie in one array of bytes."""

    codes: NDArray[np.uint8]
    starts: NDArray[np.int64]
    """(documents,): where the codes of each document begin."""
    counts: NDArray[np.int64]
    """(documents,): how many tokens each document has."""


Score = Callable[[PackedDocuments], NDArray[np.float64]]


def token_scorer(token_type: TokenType, question: NDArray[np.float32]) -> Score:
    """Return what scores documents for a question of these tokens (tokens, dim).

    A document without tokens scores minus infinity, and for a question without tokens all others
    score 0. The score of a document does not depend on the documents beside it.
    """
    if token_type == "signs":
        return _sign_scorer(question)

    def score(documents: PackedDocuments) -> NDArray[np.float64]:
        width = bytes_per_token(token_type, question.shape[1])
        scores = np.full(len(documents.starts), -np.inf)
        spans = zip(documents.starts.tolist(), documents.counts.tolist(), strict=True)
        for row, (start, count) in enumerate(spans):
            if count:
                codes = documents.codes[start : start + count * width]
                tokens = unpack_tokens(token_type, codes, question.shape[1]).astype(np.float64)
                dots = tokens @ question.T.astype(np.float64)
                scores[row] = dots.max(axis=0).sum() / max(len(question), 1)
        return scores

    return score


def token_dots(
    token_type: TokenType, question: NDArray[np.float32], codes: NDArray[np.uint8]
) -> NDArray[np.float64]:
    """Compare every token of a document with every token of a question: (tokens, question tokens).

    The mean of the columns' largest values is the score that `token_scorer` gives.
    """
    dimension = question.shape[1]
    if token_type == "signs":
        rounded = round_question(question)
        signs = unpack_signs(codes, len(codes) // bytes_per_token("signs", dimension), dimension)
        parts = [
            signs[start : start + AT_ONCE].astype(np.float32) @ rounded.values.T.astype(np.float32)
            for start in range(0, len(signs), AT_ONCE)
        ]
        integers = np.concatenate([np.zeros((0, len(question)), np.float32), *parts])
        dots: NDArray[np.float64] = integers.astype(np.float64) * (rounded.step / dimension**0.5)
        return dots
    tokens = unpack_tokens(token_type, codes, dimension)
    return tokens.astype(np.float64) @ question.T.astype(np.float64)


def _sign_scorer(question: NDArray[np.float32]) -> Score:
    rounded = round_question(question)
    # The mean over the question's tokens, of dot products with vectors of length 1.
    factor = rounded.step / (max(len(question), 1) * question.shape[1] ** 0.5)

    def score(documents: PackedDocuments) -> NDArray[np.float64]:
        dots = max_dots(rounded.values, documents.codes, documents.starts, documents.counts)
        scores = dots.sum(axis=1, dtype=np.int64) * factor
        return np.where(documents.counts > 0, scores, -np.inf)

    return score


def _unit(tokens: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring vectors to length 1."""
    lengths: NDArray[np.float32] = np.linalg.norm(tokens, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return tokens / lengths
