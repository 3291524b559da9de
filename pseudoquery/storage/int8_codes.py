"""Vectors in 8 bits: a fraction of the memory to read, and a bound on what rounding changes.

A vector v is stored as `scale * values`, with integers from -127 to 127, and with its distance from
that. A query q is written in the same way, with integers of 16 bits, so nearly nothing of it is
lost. Sums of integers are exact: a dot product made of them is off by at most |q| times the
distance, and by what is lost of q times the vector's length.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudoquery.native.scan import LARGEST_SUM, LARGEST_VALUE
from pseudoquery.storage.derived_files import map_derived, save_derived
from pseudoquery.storage.segments import Segment, map_arrays

ENDING = ".codes.safetensors"
LARGEST = 127
BLOCK = 4096
"""Vectors quantised at once."""


@dataclass(frozen=True, slots=True)
class Int8Codes:
    """Vectors in 8 bits."""

    values: NDArray[np.int8]
    """(vectors, dim)"""
    scales: NDArray[np.float32]
    """(vectors,)"""
    errors: NDArray[np.float32]
    """(vectors,): how far each vector is from its code, at most."""


class RoundedQueries(NamedTuple):
    """Query vectors as integers of 16 bits."""

    values: NDArray[np.int16]
    """(queries, dim)"""
    scales: NDArray[np.float32]
    """(queries,)"""
    lost: NDArray[np.float64]
    """(queries,): how far each query is from what it is rounded to."""


def quantise(vectors: NDArray[Any]) -> Int8Codes:
    """Write vectors (vectors, dim) in 8 bits, each in steps of its own."""
    codes = Int8Codes(
        np.empty(vectors.shape, np.int8),
        np.empty(len(vectors), np.float32),
        np.empty(len(vectors), np.float32),
    )
    for start in range(0, len(vectors), BLOCK):
        rows = slice(start, start + BLOCK)
        block = vectors[rows].astype(np.float32)
        codes.values[rows], codes.scales[rows] = _round(block)
        codes.errors[rows] = _distances(block, codes.values[rows], codes.scales[rows])
    return codes


def round_queries(queries: NDArray[np.float32]) -> RoundedQueries:
    """Write query vectors (queries, dim) in 16 bits, or in fewer if sums could overflow."""
    exact = queries.astype(np.float64)
    sizes = np.abs(exact)
    # Each value may be half a step larger than the number it stands for.
    most = LARGEST_SUM - queries.shape[1]
    least = np.maximum(sizes.max(axis=1, initial=0.0) / LARGEST_VALUE, sizes.sum(axis=1) / most)
    scales = np.where(least > 0, np.nextafter(least.astype(np.float32), np.float32(np.inf)), 0)
    steps = np.where(scales > 0, scales, 1).astype(np.float64)[:, None]
    values = np.clip(np.rint(exact / steps), -LARGEST_VALUE, LARGEST_VALUE).astype(np.int16)
    lost = np.linalg.norm(exact - values * scales.astype(np.float64)[:, None], axis=1)
    return RoundedQueries(values, scales, lost)


def codes_path(folder: Path, segment: Segment) -> Path:
    """Name the file of a segment's codes, in the folder of derived data."""
    return folder / f"{segment.name[:32]}{ENDING}"


def are_codes_of(path: Path, segment: Segment) -> bool:
    """Say whether a file holds the codes that this segment has; an older one has no sums."""
    made = quantise(segment.vectors)
    try:
        saved = map_arrays(path)
        return all(
            np.array_equal(saved[name], getattr(made, name))
            for name in ("values", "scales", "errors")
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def save_codes(path: Path, codes: Int8Codes) -> None:
    """Write codes to disk, to be mapped instead of made again."""
    arrays: dict[str, NDArray[Any]] = {
        "values": codes.values,
        "scales": codes.scales,
        "errors": codes.errors,
    }
    save_derived(path, arrays)


def map_codes(path: Path, shape: tuple[int, ...]) -> Int8Codes | None:
    """Map saved codes of vectors of this shape; any doubt means that they are made again."""
    try:
        arrays = map_derived(path)
        codes = Int8Codes(arrays["values"], arrays["scales"], arrays["errors"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    dtypes = [codes.values.dtype, codes.scales.dtype, codes.errors.dtype]
    fits = codes.values.shape == shape and codes.scales.shape == codes.errors.shape == shape[:1]
    return codes if fits and dtypes == [np.int8, np.float32, np.float32] else None


def _round(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round each vector to multiples of a step, its largest number being LARGEST of them."""
    scales = np.abs(vectors).max(axis=1, initial=0.0) / np.float32(LARGEST)
    steps = np.where(scales > 0, scales, 1)[:, None]  # a step can underflow, or a vector be zero
    values = np.clip(np.rint(vectors / steps), -LARGEST, LARGEST).astype(np.int8)
    return values, scales.astype(np.float32)


def _distances(
    vectors: NDArray[np.float32], values: NDArray[np.int8], scales: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Measure how far codes are from their vectors, rounded up."""
    decoded = values * scales[:, None].astype(np.float64)
    distances = (np.linalg.norm(vectors - decoded, axis=1) * (1 + 1e-9)).astype(np.float32)
    rounded_up: NDArray[np.float32] = np.nextafter(distances, np.float32(np.inf))
    return rounded_up
