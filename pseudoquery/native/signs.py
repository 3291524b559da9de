"""Tokens kept as the signs of their numbers, one bit each, and MaxSim of a question with them.

A document's tokens lie by column: the first byte of all tokens, then the second, and so on. So one
instruction reads the same eight signs of many tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.native.choice import NUMPY, chosen_kernel

LARGEST_VALUE = 31
"""The largest number that a question may have: four of them, twice, still fit into a byte."""
LARGEST_DIM = 4096


def code_width(dim: int) -> int:
    """Return the bytes that one token takes."""
    return -(-dim // 8)


def pack_signs(tokens: NDArray[Any]) -> NDArray[np.uint8]:
    """Keep one bit of each number of tokens (n, dim): 1 where it is not negative."""
    return np.packbits(tokens >= 0, axis=1, bitorder="little").T.ravel()


def unpack_signs(codes: NDArray[np.uint8], count: int, dim: int) -> NDArray[np.int8]:
    """Return the signs of a document's tokens, +1 or -1: (count, dim)."""
    columns = codes.reshape(code_width(dim), count)
    bits = np.unpackbits(columns.T, axis=1, count=dim, bitorder="little")
    return bits.astype(np.int8) * np.int8(2) - np.int8(1)


def max_dots(
    question: NDArray[np.int8],
    codes: NDArray[np.uint8],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Find each question token's largest dot product with a document's tokens.

    Args:
        question: (question tokens, dim), whole numbers from -31 to 31.
        codes: the codes of many documents, which may be mapped from a file.
        starts: (documents,): the byte at which the codes of each document begin.
        counts: (documents,): how many tokens each document has.

    Returns:
        (documents, question tokens). A document without tokens has -31 * dim - 1, which is less
        than any dot product.
    """
    return max_dots_by(chosen_kernel(), question, codes, starts, counts)


def max_dots_by(
    kernel: str,
    question: NDArray[np.int8],
    codes: NDArray[np.uint8],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Find the same with a kernel of this name; all kernels give the same numbers."""
    _check(question, codes, starts, counts)
    if kernel == NUMPY:
        return _max_dots_in_numpy(question, codes, starts, counts)
    from pseudoquery.native import kernels

    best = np.empty((len(starts), len(question)), dtype=np.int32)
    kernels.max_dots(kernel, question.shape[1], question, codes, starts, counts, best)
    return best


def _max_dots_in_numpy(
    question: NDArray[np.int8],
    codes: NDArray[np.uint8],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.int32]:
    dim = question.shape[1]
    best = np.full((len(starts), len(question)), -LARGEST_VALUE * dim - 1, dtype=np.int32)
    # Single precision holds whole numbers of this size exactly, in whichever order they are added.
    columns = question.astype(np.float32).T
    for document in np.flatnonzero(counts).tolist():
        start, count = int(starts[document]), int(counts[document])
        code = codes[start : start + count * code_width(dim)]
        best[document] = (unpack_signs(code, count, dim).astype(np.float32) @ columns).max(axis=0)
    return best


def _check(
    question: NDArray[np.int8],
    codes: NDArray[np.uint8],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Refuse what would make a kernel read outside of its buffers, or count wrong."""
    wanted: tuple[tuple[str, NDArray[Any], type, int], ...] = (
        ("question", question, np.int8, 2),
        ("codes", codes, np.uint8, 1),
        ("starts", starts, np.int64, 1),
        ("counts", counts, np.int64, 1),
    )
    for name, array, dtype, dimensions in wanted:
        if array.dtype != dtype or array.ndim != dimensions or not array.flags.c_contiguous:
            raise ValueError(
                f"{name} must be a contiguous array of {dtype.__name__} with {dimensions} "
                f"dimension{'s' * (dimensions > 1)}, not of {array.dtype} with {array.ndim}."
            )
    if len(starts) != len(counts):
        raise ValueError(f"there are {len(starts)} starts for {len(counts)} counts.")
    dim = question.shape[1]
    if not 1 <= dim <= LARGEST_DIM:
        raise ValueError(f"a question has {dim} numbers a token, not 1 to {LARGEST_DIM}.")
    if question.size and max(int(question.max()), -int(question.min())) > LARGEST_VALUE:
        raise ValueError(f"a question's numbers must be from -{LARGEST_VALUE} to {LARGEST_VALUE}.")
    _check_bounds(len(codes), code_width(dim), starts, counts)


def _check_bounds(
    size: int, width: int, starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    # No count times the width can overflow once it is known to be small.
    outside = (starts < 0) | (starts > size) | (counts < 0) | (counts > size // width)
    if not outside.any():
        outside = starts + counts * width > size
    if outside.any():
        document = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"document {document} has {counts[document]} tokens from byte {starts[document]} on, "
            f"which is not within the {size} bytes of the codes."
        )
