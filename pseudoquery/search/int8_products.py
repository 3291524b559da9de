"""Products of vectors in 8 bits, by instructions that are tried before they are believed.

`torch._int_mm` lays out the vectors anew for each product, which takes longer than to multiply them
with a few queries. Laid out once, they are held a second time, so it is for what is asked often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pseudoquery.storage.int8_codes import LARGEST

FEW = 16
"""Rows up to which it is much faster to multiply with what is laid out."""
ZERO = 128
"""What stands for zero on the side that the processor wants without signs."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Vectors in 8 bits, laid out as the processor's instructions want them."""

    values: torch.Tensor

    def products(self, left: NDArray[np.int8]) -> NDArray[np.float32]:
        """Multiply (rows, dim) with all vectors: integers in single precision, (rows, vectors)."""
        unsigned = torch.from_numpy(left.view(np.uint8) ^ np.uint8(ZERO))
        steps, zeros = torch.ones(1), torch.zeros(1, dtype=torch.int64)
        # One step is one on both sides; nothing is added, rounded or done to the result.
        made: NDArray[np.float32] = torch.ops.onednn.qlinear_pointwise(
            *(unsigned, 1.0, ZERO),
            *(self.values, steps, zeros),
            *(None, 1.0, 0, torch.float32, "none", [], ""),
        ).numpy()
        return made


def pack(vectors: NDArray[np.int8]) -> Packed:
    """Lay out vectors (vectors, dim); `packs` says where that can be done."""
    return Packed(torch.ops.onednn.qlinear_prepack(torch.from_numpy(vectors), None))


@lru_cache
def packs(dimension: int) -> bool:
    """Try whether products with what is laid out are right, for vectors of this dimension."""
    return _is_exact(lambda left, right: pack(right).products(left), dimension)


@lru_cache
def multiplies_integers(dimension: int) -> bool:
    """Try whether torch multiplies 8-bit integers right, for vectors of this dimension."""
    return _is_exact(multiply, dimension)


def multiply(left: NDArray[np.int8], right: NDArray[np.int8]) -> NDArray[np.int32]:
    """Multiply (rows, dim) with (vectors, dim), where `multiplies_integers` says so."""
    made: NDArray[np.int32] = torch._int_mm(
        torch.from_numpy(left), torch.from_numpy(right).T
    ).numpy()
    return made


def _is_exact(
    product: Callable[[NDArray[np.int8], NDArray[np.int8]], NDArray[Any]], dimension: int
) -> bool:
    """Try a product on vectors of which some are as large as they can be.

    A processor without instructions for it may saturate on the way, and one dimension was seen to
    go wrong: a proof can't rest on the hope that this is another machine.
    """
    generator = np.random.default_rng(0)
    vectors = generator.integers(-LARGEST, LARGEST + 1, (67, dimension)).astype(np.int8)
    vectors[:8], vectors[8:16] = LARGEST, -LARGEST
    whole = vectors.astype(np.int64) @ vectors.T.astype(np.int64)
    for rows in (2, FEW, 34):
        try:
            made = product(vectors[:rows], vectors)
        except (AttributeError, NotImplementedError, RuntimeError):
            return False
        if not np.array_equal(made, whole[:rows].astype(made.dtype)):
            return False
    return True
