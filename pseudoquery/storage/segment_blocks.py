"""Segments are compared with what was written block by block, as a search comes to use them.

A segment's file has a CRC-32 of its header, and one of each block of its arrays. So a first search
reads the blocks of the documents that it scores, and not the whole index. What was compared once is
trusted for as long as it is mapped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import IndexFolderError
from pseudoquery.storage.mapped_file import read_ahead

BLOCK = 1 << 14
"""Bytes of a block: a few documents."""
SUMS = "sums"
"""The array that has the sum of the header, then those of all other arrays, in order of their
names."""


class SegmentBlocks:
    """Remembers which blocks of a mapped segment are what was written."""

    def __init__(
        self, path: Path, arrays: Mapping[str, NDArray[Any]], header: NDArray[np.uint8]
    ) -> None:
        self._path = path
        self._bytes = {name: bytes_of(arrays[name]) for name in _names(arrays)}
        of_header, self._sums = arrays[SUMS][:1].tolist(), np.array(arrays[SUMS][1:])
        if of_header != [zlib.crc32(header.data)]:
            raise ValueError("the header is not what was written")
        self._unread = np.ones(len(self._sums), dtype=np.bool_)
        edges = np.cumsum([0, *(_count_blocks(content) for content in self._bytes.values())])
        if edges[-1] != len(self._sums):
            raise ValueError("there is not a sum for each block")
        self._firsts = dict(zip(self._bytes, edges.tolist(), strict=False))

    @property
    def names(self) -> frozenset[str]:
        """The arrays of the file."""
        return frozenset(self._bytes)

    def check(self, names: Iterable[str]) -> None:
        """Compare whole arrays."""
        for name in names:
            end = np.array([len(self._bytes[name])])
            self.check_ranges(name, np.zeros_like(end), end)

    def check_ranges(self, name: str, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Compare the blocks in which bytes of an array are, from each start up to its stop.

        Raises:
            IndexFolderError: The segment is damaged.
        """
        content, first = self._bytes[name], self._firsts[name]
        filled = starts < stops
        needed = np.zeros(_count_blocks(content) + 1, dtype=np.int64)
        np.add.at(needed, starts[filled] // BLOCK, 1)
        np.add.at(needed, (stops[filled] - 1) // BLOCK + 1, -1)
        unread = self._unread[first : first + len(needed) - 1]
        for block in np.flatnonzero((np.cumsum(needed[:-1]) > 0) & unread).tolist():
            part = content[block * BLOCK : (block + 1) * BLOCK]
            try:
                read_ahead(part)
            except OSError as error:
                raise damaged_segment(self._path, f"it can't be read ({error})") from error
            if zlib.crc32(part.data) != self._sums[first + block]:
                raise damaged_segment(self._path, "its content is not what was written")
            unread[block] = False


def sums_of(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Sum up each block of each array, in order of their names, after a place for the header."""
    sums = [
        zlib.crc32(content[start:stop].data)
        for content in (bytes_of(arrays[name]) for name in _names(arrays))
        for start, stop in pairwise([*range(0, len(content), BLOCK), len(content)])
    ]
    return np.array([0, *sums], dtype=np.int64)


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """See a contiguous array as its bytes."""
    return np.frombuffer(array.data.cast("B") if array.size else b"", np.uint8)


def damaged_segment(path: Path, how: str) -> IndexFolderError:
    """Say that a segment is damaged, and what to do."""
    index = path.parent.parent
    return IndexFolderError(
        f"{path} is damaged: {how}; the documents themselves are safe: run "
        f"`pseudoquery verify {index} --repair` to make their vectors anew."
    )


def _names(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    return sorted(set(arrays) - {SUMS})


def _count_blocks(content: NDArray[np.uint8]) -> int:
    return -(-len(content) // BLOCK)
