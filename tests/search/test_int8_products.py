from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.search import int8_products as integers
from pseudoquery.search.int8_products import FEW, Packed, multiply, pack, packs
from pseudoquery.storage.int8_codes import LARGEST

DIMENSIONS = (1, 2, 3, 24, 33, 64, 384)


def random_codes(seed: int, count: int, dimension: int) -> NDArray[np.int8]:
    """Draw vectors of which every second number is as large as it can be."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(-LARGEST, LARGEST + 1, (count, dimension))
    extreme = generator.choice([-LARGEST, LARGEST], (count, dimension))
    return np.where(generator.random(drawn.shape) < 0.5, drawn, extreme).astype(np.int8)


def whole_products(left: NDArray[np.int8], right: NDArray[np.int8]) -> NDArray[np.int64]:
    products: NDArray[np.int64] = left.astype(np.int64) @ right.T.astype(np.int64)
    return products


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, FEW),
    count=st.integers(1, 150),
    dimension=st.sampled_from(DIMENSIONS),
)
def test_what_is_laid_out_gives_the_same_products(
    seed: int, rows: int, count: int, dimension: int
) -> None:
    if not packs(dimension):
        pytest.skip("this processor does not multiply so")
    left, right = random_codes(seed, rows, dimension), random_codes(seed + 1, count, dimension)
    made = pack(right).products(left)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, whole_products(left, right))


def test_threads_may_share_what_is_laid_out() -> None:
    if not packs(64):
        pytest.skip("this processor does not multiply so")
    right = random_codes(0, 3000, 64)
    packed = pack(right)
    asked = [random_codes(seed, 2, 64) for seed in range(40)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(packed.products, asked))
    for left, made in zip(asked, found, strict=True):
        np.testing.assert_array_equal(made, whole_products(left, right))


def test_a_layout_that_goes_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def saturating(_: Packed, left: NDArray[np.int8]) -> NDArray[np.float32]:
        exact = multiply(left, trial[-1])
        return np.clip(exact, -30_000, 30_000).astype(np.float32)

    def missing(*_: Any) -> NoReturn:
        raise AttributeError("there is no such operator")

    def noted(vectors: NDArray[np.int8]) -> Packed:
        trial.append(vectors)
        return pack(vectors)

    trial: list[NDArray[np.int8]] = []
    packs.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(integers, "pack", noted)
        patch.setattr(Packed, "products", saturating)
        assert not packs(64)
        assert trial
    packs.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(integers, "pack", missing)
        assert not packs(64)
    packs.cache_clear()
