from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.native.scan import LARGEST_SUM
from pseudoquery.storage import int8_codes as codes
from pseudoquery.storage.int8_codes import (
    LARGEST,
    Int8Codes,
    map_codes,
    quantise,
    round_queries,
    save_codes,
)

seeds = st.integers(0, 2**32 - 1)


@st.composite
def vectors(draw: st.DrawFn) -> NDArray[np.float32]:
    """Draw vectors of any length and magnitude, some of them zero, some with one large number."""
    generator = np.random.default_rng(draw(seeds))
    shape = draw(st.integers(0, 30)), draw(st.integers(1, 40))
    values = generator.normal(size=shape) * 10.0 ** draw(st.integers(-30, 30))
    values[generator.random(shape[0]) < 0.2] = 0.0
    values[generator.random(shape) < 0.1] *= 1000.0
    return values.astype(np.float32)


def decoded(made: Int8Codes) -> NDArray[np.float64]:
    return made.values.astype(np.float64) * made.scales[:, None]


@given(vectors())
def test_no_vector_is_further_from_its_code_than_its_error(given_: NDArray[np.float32]) -> None:
    made = quantise(given_)
    distances = np.linalg.norm(given_.astype(np.float64) - decoded(made), axis=1)
    assert (distances <= made.errors).all()
    # The bound is not idle: it is the distance itself, rounded up.
    np.testing.assert_allclose(made.errors, distances, rtol=1e-5, atol=1e-44)


@given(vectors())
def test_a_code_is_within_half_a_step_of_every_number(given_: NDArray[np.float32]) -> None:
    made = quantise(given_)
    assert (np.abs(made.values.astype(np.int64)) <= LARGEST).all()
    steps = np.abs(given_).max(axis=1, initial=0.0) / LARGEST
    assert (np.abs(given_ - decoded(made)) <= (0.5001 * steps)[:, None] + 1e-37).all()


@given(vectors())
def test_queries_lose_what_they_say(queries: NDArray[np.float32]) -> None:
    rounded = round_queries(queries)
    again = rounded.values * rounded.scales.astype(np.float64)[:, None]
    distances = np.linalg.norm(queries.astype(np.float64) - again, axis=1)
    np.testing.assert_allclose(distances, rounded.lost, rtol=1e-6, atol=1e-44)
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    assert (rounded.lost <= lengths * queries.shape[1] ** 0.5 / 60_000 + 1e-37).all()


@pytest.mark.parametrize("dimension", [1, 500, 513, 1024, 5000])
@pytest.mark.parametrize("size", [1e-45, 1e-42, 1e-38, 1.0, 1e38])
def test_no_query_is_so_large_that_sums_overflow(dimension: int, size: float) -> None:
    """All numbers are equal, which is the worst case."""
    queries = np.full((2, dimension), size, dtype=np.float32)
    queries[1] *= -1
    rounded = round_queries(queries)
    sums = np.abs(rounded.values.astype(np.int64)).sum(axis=1)
    assert (sums <= LARGEST_SUM).all()
    assert (sums > 0).all()
    assert (rounded.lost <= 0.001 * size * dimension**0.5 + dimension * 1e-44).all()


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    given_ = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float16)
    whole = quantise(given_)
    monkeypatch.setattr(codes, "BLOCK", 7)
    for left, right in zip(fields(whole), fields(quantise(given_)), strict=True):
        np.testing.assert_array_equal(left, right)


def fields(made: Int8Codes) -> tuple[NDArray[Any], ...]:
    return made.values, made.scales, made.errors


@pytest.mark.parametrize("count", [0, 1, 9])
def test_saved_codes_are_mapped(count: int, tmp_path: Path) -> None:
    made = quantise(np.random.default_rng(0).normal(size=(count, 5)))
    path = tmp_path / "derived" / "some.codes.safetensors"
    save_codes(path, made)
    mapped = map_codes(path, (count, 5))
    assert mapped is not None
    for left, right in zip(fields(made), fields(mapped), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not count or str(tmp_path) in Path("/proc/self/maps").read_text()


def test_what_is_not_the_codes_asked_for_is_not_mapped(tmp_path: Path) -> None:
    made = quantise(np.random.default_rng(0).normal(size=(9, 5)))
    path = tmp_path / "some.codes.safetensors"
    assert map_codes(path, (9, 5)) is None
    save_codes(path, made)
    assert map_codes(path, (8, 5)) is None
    content = path.read_bytes()
    for damaged in (b"", content[:3], content[:60], content[:-1], b"[]" + content, content[8:]):
        path.write_bytes(damaged)
        assert map_codes(path, (9, 5)) is None
    path.write_bytes(content.replace(b"I8", b"U8"))
    assert map_codes(path, (9, 5)) is None
    path.write_bytes(content.replace(b"errors", b"worths"))
    assert map_codes(path, (9, 5)) is None
