"""Files of arrays that can be made again: mapped only if every byte is what was written.

A search reads most of such a file at once, so all of it is compared when it is mapped. For that the
bytes are laid out as tables of 64-bit words. The sums of their rows and columns are made as fast as
memory can be read. One or two flipped bits always change a row's sum or a column's, and so does all
but a vanishing part of anything else that can happen to a disk.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from pseudoquery.files import write_atomically
from pseudoquery.storage.mapped_file import read_ahead
from pseudoquery.storage.segment_blocks import bytes_of
from pseudoquery.storage.segments import map_arrays

SUMS = "sums"
COLUMNS = 512
TABLE = 1 << 20
"""Bytes of a table, which a processor's cache holds."""


def save_derived(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to disk, to be mapped instead of made again."""
    write_atomically(path, save({**arrays, SUMS: _sums_of(arrays)}))


def map_derived(path: Path) -> dict[str, NDArray[Any]]:
    """Map arrays that `save_derived` has written, or fail with an OSError or a ValueError."""
    arrays = map_arrays(path)
    if not _is_sound(arrays, arrays.pop(SUMS, None)):
        raise ValueError(f"the content of {path} is not what was written")
    return arrays


def sum_up(content: NDArray[np.uint8]) -> int:
    """Sum up bytes in tables, as described above."""
    of_rows = of_columns = 0
    for start in range(0, len(content), TABLE):
        part = content[start : start + TABLE]
        if rest := -len(part) % (8 * COLUMNS):
            part = np.concatenate([part, np.zeros(rest, np.uint8)])
        table = part.view(np.uint64).reshape(-1, COLUMNS)
        of_rows = zlib.crc32(table.sum(axis=1), of_rows)
        of_columns = zlib.crc32(table.sum(axis=0), of_columns)
    return of_rows << 31 | of_columns


def _is_sound(arrays: Mapping[str, NDArray[Any]], sums: NDArray[Any] | None) -> bool:
    return sums is not None and np.array_equal(sums, _sums_of(arrays))


def _sums_of(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    contents = [bytes_of(arrays[name]) for name in sorted(arrays)]
    for content in contents:
        read_ahead(content)
    return np.array([sum_up(content) for content in contents], dtype=np.int64)
