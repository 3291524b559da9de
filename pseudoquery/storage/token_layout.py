"""Where a document's tokens stand in its text, and which vector each belongs to, in few bytes.

Tokens follow each other, so the gaps between them and their lengths are small numbers, and long
runs of them belong to one vector: compressed, they take about a byte a token.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ROWS = 3
"""Gaps, lengths and owners."""
NUMBER = "<i4"


class TokenLayout(NamedTuple):
    """The tokens of a document."""

    spans: NDArray[np.int64]
    """(tokens, 2): where each token stands in the encoded text, as character offsets."""
    owners: NDArray[np.int64]
    """(tokens,): the vector that each token contributes to most, or -1."""


def pack_layout(spans: NDArray[np.int64], owners: NDArray[np.int64]) -> bytes:
    """Write where tokens stand and what they belong to; no tokens take no bytes."""
    if not len(owners):
        return b""
    ends = np.concatenate([[0], spans[:-1, 1]])
    columns = np.stack([spans[:, 0] - ends, spans[:, 1] - spans[:, 0], owners])
    return zlib.compress(columns.astype(NUMBER).tobytes())


def unpack_layout(content: bytes, tokens: int) -> TokenLayout:
    """Read what `pack_layout` has written for a document of so many tokens.

    Raises:
        ValueError: The content is not what was written.
    """
    if not tokens:
        return TokenLayout(np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64))
    size = ROWS * tokens * np.dtype(NUMBER).itemsize
    try:
        # A damaged content could grow without end.
        unpacked = zlib.decompressobj().decompress(content, size + 1)
    except zlib.error as error:
        raise ValueError("the layout of the tokens is damaged") from error
    if len(unpacked) != size:
        raise ValueError("the layout is of another number of tokens")
    gaps, lengths, owners = (
        np.frombuffer(unpacked, dtype=NUMBER).astype(np.int64).reshape(ROWS, tokens)
    )
    starts = np.cumsum(gaps + np.concatenate([[0], lengths[:-1]]))
    return TokenLayout(np.stack([starts, starts + lengths], axis=1), owners)
