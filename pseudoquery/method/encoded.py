"""What the encoder makes of texts: the vectors and tokens of documents and questions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


def _no_codes() -> NDArray[np.uint8]:
    return np.zeros(0, dtype=np.uint8)


def _no_owners() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


def _no_spans() -> NDArray[np.int64]:
    return np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class DocumentVectors:
    """The vectors of a document, and the tokens that they were made of.

    The tokens are those that stand for text; tokens such as [CLS] are left out.
    """

    vectors: NDArray[np.float32]
    """(vectors, dim)"""
    owners: NDArray[np.int64] = field(default_factory=_no_owners)
    """(tokens,): the vector that each token contributes to most, or -1."""
    spans: NDArray[np.int64] = field(default_factory=_no_spans)
    """(tokens, 2): where each token stands in the encoded text, as character offsets."""
    codes: NDArray[np.uint8] = field(default_factory=_no_codes)
    """The tokens' own vectors, as `token_codes.pack_tokens` writes them; empty if not wanted."""
    cut: bool = False
    """Whether text was left out, because truncation was asked for."""


@dataclass(frozen=True, slots=True)
class QuestionVectors:
    """The vectors of a question, and those of its tokens."""

    vectors: NDArray[np.float32]
    """(vectors, dim): what is compared with the documents' vectors."""
    tokens: NDArray[np.float32]
    """(tokens, dim): of length 1; tokens such as [CLS] are left out."""
    spans: NDArray[np.int64] = field(default_factory=_no_spans)
    """(tokens, 2): where each token stands in the question."""
