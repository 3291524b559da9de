"""Errors of single precision stay within their bounds."""

from __future__ import annotations

import math
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.search.error_bounds import rounding_error
from tests.storage.test_vector_view import view_of
from tests.support.search_cases import random_view, seeds, unit


def products(kind: str, vectors: NDArray[np.float32], query: NDArray[np.float32]) -> Any:
    """Multiply in single precision in the ways that search and Faiss do."""
    if kind == "matmul":
        return vectors @ query[0]
    if kind == "batched matmul":
        return (vectors @ np.repeat(query, 7, axis=0).T)[:, 3]
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    # From 20 queries on, Faiss multiplies matrices.
    batch = np.repeat(query, 30 if kind == "batched faiss" else 1, axis=0)
    dots, positions = index.search(batch, len(vectors))
    return dots[-1][np.argsort(positions[-1])]


def assert_bounded(kind: str, vectors: NDArray[Any], query: NDArray[Any]) -> None:
    single, asked = vectors.astype(np.float32), query.astype(np.float32)
    view = view_of([single], dimension=single.shape[1])
    bound = rounding_error(view, asked, Representation(scale=1.0))
    double = asked[0].astype(np.float64)
    truth = [math.fsum((row * double).tolist()) for row in single.astype(np.float64)]
    errors = np.abs(products(kind, single, asked).astype(np.float64) - truth)
    assert errors.max() <= bound
    assert rounding_error(view, asked, Representation(scale=3.0)) == pytest.approx(3 * bound)


PRODUCTS = ("matmul", "batched matmul", "faiss", "batched faiss")


@pytest.mark.parametrize("kind", PRODUCTS)
@given(
    seed=seeds,
    dimension=st.integers(1, 800),
    spread=st.sampled_from([0.0, 3.0, 12.0]),
    length=st.sampled_from([1e-30, 1e-19, 1e-3, 1.0, 1e3, 1e15]),
    asked=st.sampled_from([1e-20, 1.0, 1e3]),
    cancel=st.booleans(),
)
@settings(max_examples=60)
def test_rounding_bounds_the_error_of_single_precision(
    kind: str, seed: int, dimension: int, spread: float, length: float, asked: float, cancel: bool
) -> None:
    generator = np.random.default_rng(seed)
    sizes = 10.0 ** generator.uniform(-spread, 0, size=(12, dimension))
    values = generator.normal(size=(12, dimension)) * sizes
    query = generator.normal(size=(1, dimension))
    if cancel and dimension > 1:  # each product is undone by another, but for a little
        half = dimension // 2
        values[:, half : 2 * half] = -values[:, :half] * (1 + 1e-6)
        query[:, half : 2 * half] = query[:, :half]
    assert_bounded(kind, length * values, asked * query)


@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("large", [1, 8, 16, 64])
@pytest.mark.parametrize("dimension", [128, 768, 4096])
def test_rounding_bounds_what_is_lost_beside_large_numbers(
    kind: str, large: int, dimension: int
) -> None:
    small = (0.98 * 2.0**-24) ** 0.5  # a product just too small to be added to 1
    values = np.full((1, dimension), small)
    values[:, :large] = 1.0
    assert_bounded(kind, values, values)


def test_rounding_is_small_and_not_more_than_needed() -> None:
    generator = np.random.default_rng(0)
    view = random_view(generator, 100, 4, 384)
    query = unit(generator.normal(size=(1, 384)))
    assert 0 < rounding_error(view, query, Representation(scale=1.0)) < 1e-3
