"""Arrays that can be made again: mapped only if every byte is what was written."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save

from pseudoquery.storage import derived_files
from pseudoquery.storage.derived_files import map_derived, save_derived, sum_up

ARRAYS: dict[str, NDArray[Any]] = {
    "values": np.arange(-60, 60, dtype=np.int8).reshape(12, 10),
    "scales": np.linspace(0, 1, 12, dtype=np.float32),
    "nothing": np.zeros((0, 3), dtype=np.float32),
}


def sum_up_slowly(content: bytes, table: int, columns: int) -> int:
    """Add up words one by one."""
    of_rows = of_columns = 0
    for start in range(0, len(content), table):
        part = content[start : start + table]
        part += bytes(-len(part) % (8 * columns))
        words = [int.from_bytes(part[at : at + 8], "little") for at in range(0, len(part), 8)]
        rows = [sum(words[at : at + columns]) for at in range(0, len(words), columns)]
        sums = [sum(words[at::columns]) for at in range(columns)]
        for name, numbers in (("rows", rows), ("columns", sums)):
            packed = b"".join((number % 2**64).to_bytes(8, "little") for number in numbers)
            if name == "rows":
                of_rows = zlib.crc32(packed, of_rows)
            else:
                of_columns = zlib.crc32(packed, of_columns)
    return of_rows << 31 | of_columns


@given(st.binary(max_size=2_000))
def test_sums_are_those_of_rows_and_columns(content: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derived_files, "COLUMNS", 4)
        patch.setattr(derived_files, "TABLE", 256)
        assert sum_up(np.frombuffer(content, np.uint8)) == sum_up_slowly(content, 256, 4)


@given(st.data())
def test_one_or_two_flipped_bits_change_the_sum(data: st.DataObject) -> None:
    content = np.frombuffer(data.draw(st.binary(min_size=1, max_size=20_000)), np.uint8).copy()
    before = sum_up(content)
    bits = data.draw(st.sets(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=2))
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8
    assert sum_up(content) != before


def test_what_was_written_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "codes.safetensors"
    save_derived(path, ARRAYS)
    mapped = map_derived(path)
    assert mapped.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(mapped[name], array)
        assert mapped[name].dtype == array.dtype


def test_no_flipped_bit_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "codes.safetensors"
    save_derived(path, ARRAYS)
    content = path.read_bytes()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        try:
            mapped = map_derived(path)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        # A name, or white space, may change; what an array holds may not.
        for name in mapped.keys() & ARRAYS.keys():
            assert mapped[name].tobytes() == ARRAYS[name].tobytes()


def test_a_file_without_sums_is_made_again(tmp_path: Path) -> None:
    """As older versions have written it."""
    path = tmp_path / "codes.safetensors"
    path.write_bytes(save(ARRAYS))
    with pytest.raises(ValueError, match="is not what was written"):
        map_derived(path)
