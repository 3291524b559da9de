"""MaxSim over sign codes: every kernel finds what the slowest and plainest loop finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.errors import QueryError
from pseudoquery.native import choice
from pseudoquery.native.choice import NUMPY, available_kernels
from pseudoquery.native.signs import (
    LARGEST_DIM,
    LARGEST_VALUE,
    code_width,
    max_dots,
    max_dots_by,
    pack_signs,
    unpack_signs,
)

COUNTS = (0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 600)
EDGES = (1, 4, 7, 8, 9, 384, 2048, 2049, 2056, LARGEST_DIM)
"""Dimensions at which a byte, a table or a sum of 16 bits ends."""
Documents = list[NDArray[np.float32]]


def draw_documents(counts: list[int], dim: int, seed: int) -> Documents:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((count, dim), dtype=np.float32) for count in counts]


def draw_question(kind: str, tokens: int, documents: Documents, dim: int) -> NDArray[np.int8]:
    """Draw numbers of all sizes; or the largest ones, as a document's token has signs or not."""
    generator = np.random.default_rng(tokens)
    if kind == "any":
        return generator.integers(-LARGEST_VALUE, LARGEST_VALUE + 1, (tokens, dim)).astype(np.int8)
    question = np.full((tokens, dim), LARGEST_VALUE, dtype=np.int8)
    for document in documents[:1]:
        for row, token in enumerate(document[:tokens]):
            question[row] = np.where(token >= 0, LARGEST_VALUE, -LARGEST_VALUE)
    return question if kind == "alike" else -question


def join(documents: Documents) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Put documents one after the other, with a byte between them that belongs to none."""
    gap = np.full(1, 0xA5, dtype=np.uint8)
    parts = [part for document in documents for part in (gap, pack_signs(document))]
    sizes = [len(part) for part in parts]
    starts = np.cumsum([0, *sizes])[1::2].astype(np.int64)
    counts = np.array([len(document) for document in documents], dtype=np.int64)
    return np.concatenate([*parts, gap]), starts, counts


def slow_max_dots(question: NDArray[np.int8], documents: Documents) -> list[list[int]]:
    """Multiply and compare as the definition says."""
    best = []
    for document in documents:
        signs = np.where(document >= 0, 1, -1)
        rows = [[int(signs_ @ token) for signs_ in signs] for token in question.astype(np.int64)]
        best.append([max(row, default=-LARGEST_VALUE * question.shape[1] - 1) for row in rows])
    return best


def check_kernels(question: NDArray[np.int8], documents: Documents) -> None:
    arrays = join(documents)
    expected = slow_max_dots(question, documents)
    for kernel in available_kernels():
        best = max_dots_by(kernel, question, *arrays)
        assert best.dtype == np.int32
        assert best.tolist() == expected, kernel


@given(
    dim=st.integers(1, 1100),
    counts=st.lists(st.sampled_from(COUNTS), max_size=4),
    tokens=st.integers(0, 9),
    kind=st.sampled_from(["any", "alike", "unlike"]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=60)
def test_every_kernel_finds_the_largest_dots(
    dim: int, counts: list[int], tokens: int, kind: str, seed: int
) -> None:
    documents = draw_documents(counts, dim, seed)
    check_kernels(draw_question(kind, tokens, documents, dim), documents)


@pytest.mark.parametrize("dim", EDGES)
@pytest.mark.parametrize("kind", ["any", "alike", "unlike"])
def test_no_sum_overflows(dim: int, kind: str) -> None:
    documents = draw_documents([33, 70, 1, 0], dim, 5)
    check_kernels(draw_question(kind, 5, documents, dim), documents)


def test_the_bits_of_padding_do_not_count() -> None:
    documents = draw_documents([40, 3], 13, 1)
    question = draw_question("any", 5, documents, 13)
    codes, starts, counts = join(documents)
    for start, count in zip(starts, counts, strict=True):
        codes[start + count : start + 2 * count] |= 0b1110_0000
    for kernel in available_kernels():
        best = max_dots_by(kernel, question, codes, starts, counts)
        assert best.tolist() == slow_max_dots(question, documents)


@given(count=st.integers(0, 70), dim=st.integers(1, 70), seed=st.integers(0, 99))
@settings(deadline=None)
def test_signs_come_back(count: int, dim: int, seed: int) -> None:
    (tokens,) = draw_documents([count], dim, seed)
    tokens[:, ::3] = 0  # it counts as positive
    codes = pack_signs(tokens)
    assert codes.dtype == np.uint8
    assert codes.shape == (count * code_width(dim),)
    signs = unpack_signs(codes, count, dim)
    assert signs.dtype == np.int8
    np.testing.assert_array_equal(signs, np.where(tokens >= 0, 1, -1))


def test_the_layout_is_by_column() -> None:
    tokens = np.array([[1, -1, -1, -1, -1, -1, -1, -1, 1], [-1, 1, 0, -1, -1, -1, -1, 1, -1]])
    assert pack_signs(tokens).tolist() == [0b1, 0b1000_0110, 1, 0]


def test_codes_are_read_from_a_file(tmp_path: Path) -> None:
    documents = draw_documents([600, 31, 64], 384, 2)
    codes, starts, counts = join(documents)
    path = tmp_path / "codes"
    codes[:-1].tofile(path)  # the last document ends where the file ends
    question = draw_question("any", 12, documents, 384)
    expected = slow_max_dots(question, documents)
    for mode in ("r", "c"):
        mapped = np.memmap(path, np.uint8, mode=mode)
        for kernel in available_kernels():
            assert max_dots_by(kernel, question, mapped, starts, counts).tolist() == expected


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = draw_documents([5, 40], 20, 3)
    question = draw_question("any", 3, documents, 20)
    for kernel in available_kernels():
        monkeypatch.setenv("PSEUDOQUERY_KERNEL", kernel)
        assert choice.chosen_kernel() == kernel
        assert max_dots(question, *join(documents)).tolist() == slow_max_dots(question, documents)
    monkeypatch.delenv("PSEUDOQUERY_KERNEL")
    assert choice.chosen_kernel() == available_kernels()[0]
    monkeypatch.setattr(choice, "COMPILED", ())
    assert choice.chosen_kernel() == NUMPY
    monkeypatch.setenv("PSEUDOQUERY_KERNEL", "abacus")
    with pytest.raises(QueryError, match="is 'abacus', and this machine has numpy; name"):
        choice.chosen_kernel()


QUESTION = np.ones((2, 16), dtype=np.int8)
CODES = np.zeros(20, dtype=np.uint8)
STARTS = np.array([0, 10], dtype=np.int64)
COUNTS_OF_FIVE = np.array([5, 5], dtype=np.int64)
BAD = {
    "question must be a contiguous array of int8 with 2 dimensions": (
        [QUESTION.astype(np.float32), CODES, STARTS, COUNTS_OF_FIVE],
        [QUESTION[0], CODES, STARTS, COUNTS_OF_FIVE],
        [np.ones((2, 32), dtype=np.int8)[:, ::2], CODES, STARTS, COUNTS_OF_FIVE],
    ),
    "codes must be a contiguous array of uint8 with 1 dimension": (
        [QUESTION, CODES.view(np.int8), STARTS, COUNTS_OF_FIVE],
        [QUESTION, CODES.reshape(4, 5), STARTS, COUNTS_OF_FIVE],
        [QUESTION, np.zeros(40, dtype=np.uint8)[::2], STARTS, COUNTS_OF_FIVE],
    ),
    "starts must be": ([QUESTION, CODES, STARTS.astype(np.int32), COUNTS_OF_FIVE],),
    "counts must be": ([QUESTION, CODES, STARTS, COUNTS_OF_FIVE.astype(np.uint64)],),
    "there are 2 starts for 1 counts": ([QUESTION, CODES, STARTS, COUNTS_OF_FIVE[:1]],),
    "has 0 numbers a token, not 1 to 4096": (
        [np.ones((2, 0), dtype=np.int8), CODES, STARTS, COUNTS_OF_FIVE],
    ),
    "has 4097 numbers a token, not 1 to 4096": (
        [np.ones((2, 4097), dtype=np.int8), CODES, STARTS, COUNTS_OF_FIVE],
    ),
    "numbers must be from -31 to 31": (
        [QUESTION * np.int8(32), CODES, STARTS, COUNTS_OF_FIVE],
        [QUESTION * np.int8(-128), CODES, STARTS, COUNTS_OF_FIVE],
    ),
    "document 1 has 5 tokens from byte 11 on, which is not within the 20 bytes": (
        [QUESTION, CODES, np.array([0, 11]), COUNTS_OF_FIVE],
    ),
    "document 0 has 11 tokens": ([QUESTION, CODES, STARTS, np.array([11, 0])],),
    "document 1 has -1 tokens": ([QUESTION, CODES, STARTS, np.array([0, -1])],),
    "from byte -1 on": ([QUESTION, CODES, np.array([-1, 0]), np.array([1, 1])],),
    "from byte 9223372036854775807 on": (
        [QUESTION, CODES, np.array([0, 2**63 - 1]), COUNTS_OF_FIVE],
    ),
    "document 1 has 9223372036854775807 tokens": (
        [QUESTION, CODES, STARTS, np.array([1, 2**63 - 1])],
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_what_can_not_be_multiplied_is_refused(message: str) -> None:
    for arguments in BAD[message]:
        for kernel in available_kernels():
            with pytest.raises(ValueError, match=message):
                max_dots_by(kernel, *arguments)


def test_the_extension_refuses_sizes_that_do_not_fit() -> None:
    kernels = pytest.importorskip("pseudoquery.native.kernels")
    best = np.empty((2, 2), dtype=np.int32)
    for name in kernels.names():
        with pytest.raises(ValueError, match="do not fit together"):
            kernels.max_dots(name, 15, QUESTION, CODES, STARTS, COUNTS_OF_FIVE, best)
        with pytest.raises(ValueError, match="do not fit together"):
            kernels.max_dots(name, 16, QUESTION, CODES, STARTS, COUNTS_OF_FIVE, best[:1])
    with pytest.raises(ValueError, match="no kernel 'abacus'"):
        kernels.max_dots("abacus", 16, QUESTION, CODES, STARTS, COUNTS_OF_FIVE, best)
