"""Scores from vectors in 8 bits: every kernel is as near the truth as single precision allows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.native.choice import NUMPY, available_kernels
from pseudoquery.native.scan import (
    LARGEST_SUM,
    LARGEST_VALUE,
    Codes,
    Documents,
    IntegerQueries,
    estimate_scores,
    estimate_scores_by,
)

EPSILON = float(np.finfo(np.float32).eps)
UNTOUCHED = 7.0
"""What stands in the column of a document that is left out."""
COUNTS = (0, 1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 200)


def draw_queries(generator: np.random.Generator, queries: int, dim: int) -> IntegerQueries:
    """Draw values as large as they may be, up to a sum that is as large as it may be."""
    most = min(LARGEST_VALUE, LARGEST_SUM // dim)
    values = generator.integers(-most, most + 1, (queries, dim))
    extreme = generator.random(queries) < 0.5
    values[extreme] = np.where(values[extreme] < 0, -most, most)
    return IntegerQueries(
        values.astype(np.int16), generator.uniform(1e-9, 1e-5, queries).astype(np.float32)
    )


def draw_codes(generator: np.random.Generator, vectors: int, dim: int) -> Codes:
    """Draw numbers of all sizes; every second vector has the largest only."""
    values = generator.integers(-128, 128, (vectors, dim))
    values[::2] = np.where(values[::2] < 0, -128, 127)
    scales = generator.uniform(0, 0.1, vectors).astype(np.float32)
    return Codes(values.astype(np.int8), scales)


def lay_out(counts: list[int], generator: np.random.Generator) -> Documents:
    """Put documents one after the other, with their columns in any order."""
    sizes = np.array(counts, dtype=np.int64)
    return Documents(np.cumsum(sizes) - sizes, sizes, generator.permutation(len(sizes)))


def slow_score(dots: list[float], *, softmax: bool) -> float:
    """Score by the definition, in double precision."""
    largest = max(dots)
    if not softmax:
        return largest
    weights = [math.exp(dot - largest) for dot in dots]
    return math.fsum(w * dot for w, dot in zip(weights, dots, strict=True)) / math.fsum(weights)


def slow_scores(
    queries: IntegerQueries, codes: Codes, documents: Documents, *, softmax: bool
) -> NDArray[np.float64]:
    scores = np.full((len(queries.values), len(documents.starts)), UNTOUCHED)
    for row, (query, scale) in enumerate(zip(*queries, strict=True)):
        for document, start in enumerate(documents.starts.tolist()):
            rows = range(start, start + int(documents.counts[document]))
            if not rows:
                continue
            whole = [int(query.astype(np.int64) @ codes.values[at].astype(np.int64)) for at in rows]
            dots = [
                dot * float(scale) * float(codes.scales[at])
                for dot, at in zip(whole, rows, strict=True)
            ]
            scores[row, documents.positions[document]] = slow_score(dots, softmax=softmax)
    return scores


def largest_dot(queries: IntegerQueries, codes: Codes) -> float:
    """Bound every dot: by the sum of all products without their signs."""
    sums = np.abs(queries.values.astype(np.float64)) @ np.abs(codes.values.astype(np.float64)).T
    return float((sums * queries.scales[:, None] * codes.scales).max(initial=0.0))


@given(
    dim=st.integers(1, 1100),
    queries=st.integers(0, 5),
    counts=st.lists(st.sampled_from(COUNTS), max_size=6),
    softmax=st.booleans(),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=60)
def test_every_kernel_estimates_the_scores(
    dim: int, queries: int, counts: list[int], softmax: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    asked = draw_queries(generator, queries, dim)
    codes = draw_codes(generator, sum(counts), dim)
    documents = lay_out(counts, generator)
    truth = slow_scores(asked, codes, documents, softmax=softmax)
    size = largest_dot(asked, codes)
    for kernel in available_kernels():
        estimates = np.full((queries, len(counts)), UNTOUCHED, dtype=np.float32)
        estimate_scores_by(kernel, asked, codes, documents, estimates, softmax=softmax)
        # Sums are exact but in numpy, where each addition rounds.
        units = 2 * max(counts, default=0) + 24 + (2 * dim if kernel == NUMPY else 0)
        assert (np.abs(estimates - truth) <= units * EPSILON * size).all(), kernel


@pytest.mark.parametrize("kernel", [name for name in available_kernels() if name != NUMPY])
@pytest.mark.parametrize("dim", [1, 15, 16, 17, 63, 64, 65, 384, 512, 1024, 4096, 70_000])
def test_sums_are_exact(kernel: str, dim: int) -> None:
    """The largest sums, and those that cancel but for 1, come out to the last bit."""
    generator = np.random.default_rng(dim)
    queries = draw_queries(generator, 3, dim)
    queries = queries._replace(scales=np.ones(3, np.float32))
    codes = draw_codes(generator, 9, dim)._replace(scales=np.ones(9, np.float32))
    codes.values[0] = np.where(queries.values[0] < 0, -128, 127)
    codes.values[1] = -codes.values[0]
    codes.values[2] = 0
    codes.values[2, -1] = 1
    estimates = np.empty((3, 9), dtype=np.float32)
    each = Documents(np.arange(9), np.ones(9, np.int64), np.arange(9))
    estimate_scores_by(kernel, queries, codes, each, estimates, softmax=False)
    whole = queries.values.astype(np.int64) @ codes.values.astype(np.int64).T
    np.testing.assert_array_equal(estimates, whole.astype(np.float32))


@pytest.mark.parametrize("kernel", available_kernels())
def test_exponentials_are_as_exact_as_the_bound_assumes(kernel: str) -> None:
    """The score of the dots 0 and -x is -x / (1 + e^x)."""
    lacks = np.concatenate([np.linspace(0, 90, 40_001), [1e-30, 88.0, 200.0, 3e38]])
    scales = np.zeros(2 * len(lacks), dtype=np.float32)
    scales[1::2] = lacks
    codes = Codes(np.full((len(scales), 1), -1, np.int8), scales)
    documents = Documents(np.arange(len(lacks)) * 2, np.full(len(lacks), 2), np.arange(len(lacks)))
    queries = IntegerQueries(np.ones((1, 1), np.int16), np.ones(1, np.float32))
    estimates = np.empty((1, len(lacks)), dtype=np.float32)
    estimate_scores_by(kernel, queries, codes, documents, estimates, softmax=True)
    exact = scales[1::2].astype(np.float64)
    weights = np.exp(-exact)
    # Two units for the exponential, and half a one for each step that follows.
    assert (
        np.abs(estimates[0] + exact * weights / (1 + weights))
        <= 4 * EPSILON * exact * weights + 2e-36
    ).all()


@pytest.mark.parametrize("kernel", available_kernels())
@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("count", [1, 2, 8, 9])
def test_what_overflows_is_not_finite(kernel: str, softmax: bool, count: int) -> None:
    for value, scale in ((127, 1.0), (-127, 1e-38), (0, np.inf)):
        values = np.ones((count, 1), dtype=np.int8)
        scales = np.full(count, 1e-30, dtype=np.float32)
        values[-1], scales[-1] = value, scale
        queries = IntegerQueries(np.full((1, 1), 10_000, np.int16), np.full(1, 1e34, np.float32))
        one = Documents(*(np.array([number]) for number in (0, count, 0)))
        estimates = np.zeros((1, 1), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            estimate_scores_by(
                kernel, queries, Codes(values, scales), one, estimates, softmax=softmax
            )
        assert not np.isfinite(estimates).any()


@pytest.mark.parametrize("kernel", available_kernels())
def test_other_columns_stay_and_other_vectors_are_not_read(kernel: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    queries, codes = draw_queries(generator, 3, 33), draw_codes(generator, 100, 33)
    path = tmp_path / "codes"
    codes.values.tofile(path)
    mapped = np.memmap(path, np.int8, mode="r", shape=(100, 33))
    some = Documents(np.array([97, 3, 50]), np.array([3, 1, 20]), np.array([4, 0, 2]))
    estimates = np.full((3, 6), 7, dtype=np.float32)
    scales = codes.scales.copy()
    scales[4:50] = np.nan
    estimate_scores_by(kernel, queries, Codes(mapped, scales), some, estimates, softmax=True)
    assert (estimates[:, [1, 3, 5]] == 7).all()
    assert np.isfinite(estimates).all()
    alone = np.empty((3, 6), dtype=np.float32)
    for row in range(3):
        one = some.choose(slice(row, row + 1))
        estimate_scores_by(kernel, queries, codes, one, alone, softmax=True)
    np.testing.assert_allclose(alone[:, [4, 0, 2]], estimates[:, [4, 0, 2]], rtol=1e-4)


def good() -> dict[str, NDArray[Any]]:
    return {
        "queries": np.ones((2, 5), np.int16),
        "query scales": np.ones(2, np.float32),
        "codes": np.ones((7, 5), np.int8),
        "code scales": np.ones(7, np.float32),
        "starts": np.array([0, 4]),
        "counts": np.array([4, 3]),
        "positions": np.array([0, 1]),
        "estimates": np.zeros((2, 2), np.float32),
    }


def run(kernel: str, parts: dict[str, NDArray[Any]]) -> None:
    queries = IntegerQueries(parts["queries"], parts["query scales"])
    codes = Codes(parts["codes"], parts["code scales"])
    documents = Documents(parts["starts"], parts["counts"], parts["positions"])
    estimate_scores_by(kernel, queries, codes, documents, parts["estimates"], softmax=True)


@pytest.mark.parametrize("kernel", available_kernels())
@pytest.mark.parametrize("name", good())
def test_arrays_that_do_not_fit_are_refused(kernel: str, name: str) -> None:
    run(kernel, good())
    array = good()[name]
    strided = np.repeat(array, 2, axis=-1)[..., ::2]
    for bad in (array.astype(np.float64), array[:-1], strided, array[None]):
        with pytest.raises(ValueError, match=r"must be a contiguous array|is not within"):
            run(kernel, {**good(), name: bad})


@pytest.mark.parametrize("kernel", available_kernels())
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("starts", [0, 5]),
        ("starts", [0, -1]),
        ("starts", [0, 2**63 - 1]),
        ("counts", [4, -1]),
        ("counts", [4, 4]),
        ("counts", [4, 2**63 - 1]),
        ("positions", [0, 2]),
        ("positions", [0, -1]),
    ],
)
def test_documents_outside_are_refused(kernel: str, name: str, values: list[int]) -> None:
    message = "document 1 is not within the 7 vectors and the 2 columns."
    with pytest.raises(ValueError, match=message):
        run(kernel, {**good(), name: np.array(values)})


@pytest.mark.parametrize("kernel", available_kernels())
def test_queries_whose_sums_could_overflow_are_refused(kernel: str) -> None:
    parts = good()
    parts["queries"] = np.full((1, 513), LARGEST_VALUE, np.int16)
    parts["query scales"] = np.ones(1, np.float32)
    parts["codes"] = np.ones((7, 513), np.int8)
    parts["estimates"] = np.zeros((1, 2), np.float32)
    with pytest.raises(ValueError, match=f"sum up to more than {LARGEST_SUM}"):
        run(kernel, parts)


def test_the_extension_refuses_sizes_that_do_not_fit() -> None:
    kernels = pytest.importorskip("pseudoquery.native.kernels")
    parts = good()
    for kernel in kernels.names():
        for name in parts:
            cut = {**parts, name: parts[name][:-1]}
            with pytest.raises(ValueError, match=r"do not fit together|is not within"):
                kernels.estimate(kernel, 5, True, *cut.values())


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    queries, codes = draw_queries(generator, 2, 50), draw_codes(generator, 30, 50)
    documents = lay_out([10, 20], generator)
    for kernel in available_kernels():
        chosen, named = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)
        monkeypatch.setenv("PSEUDOQUERY_KERNEL", kernel)
        estimate_scores(queries, codes, documents, chosen, softmax=True)
        estimate_scores_by(kernel, queries, codes, documents, named, softmax=True)
        np.testing.assert_array_equal(chosen, named)
