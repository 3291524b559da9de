"""Immutable files of vectors: written once, synced, renamed, then only mapped.

A segment is a safetensors file with `vectors` (vectors, dim), and for each of its documents, in
order, its ordinal in the store (`ordinals`) and how many of the vectors belong to it (`counts`).
Vectors in 8 bits come with the length of their steps (`scales`).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from pseudoquery.errors import IndexFolderError
from pseudoquery.files import sha256_of, write_atomically

VECTOR_TYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "int8": np.dtype(np.int8),
}
BLOCK = 4096
"""Vectors that are brought to double precision at once."""
_DTYPES = {"F16": np.float16, "F32": np.float32, "I64": np.int64, "I8": np.int8}


@dataclass(frozen=True, slots=True)
class Segment:
    """A mapped segment; nothing is read until it is used."""

    vectors: NDArray[Any]
    ordinals: NDArray[np.int64]
    counts: NDArray[np.int64]
    scales: NDArray[np.float32] | None = None
    """(vectors,): what vectors in 8 bits are multiplied by."""
    name: str = ""
    """The checksum of its file, by which derived data names the segment."""

    def decoded(self, rows: Any = slice(None)) -> NDArray[np.float32]:
        """Read some of the vectors, (rows, dim)."""
        vectors: NDArray[np.float32] = self.vectors[rows].astype(np.float32)
        if self.scales is not None:
            vectors *= self.scales[rows, None]
        return vectors


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the store remembers of a segment, to find any damage to it."""

    number: int
    first: int
    """The smallest ordinal in it; segments are ordered by this."""
    documents: int
    vectors: int
    bytes: int
    sha256: str
    norm: float
    """The length of its longest vector, which bounds the rounding error of any dot product."""


def segment_path(folder: Path, number: int) -> Path:
    """Name the file of a segment."""
    return folder / "segments" / f"{number:08d}.safetensors"


def write_segment(folder: Path, number: int, segment: Segment) -> SegmentFacts:
    """Write a segment so that its file is either complete on disk, or absent."""
    arrays = {
        "vectors": segment.vectors,
        "ordinals": segment.ordinals,
        "counts": segment.counts,
    }
    if segment.scales is not None:
        arrays["scales"] = segment.scales
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    write_atomically(segment_path(folder, number), content)
    return facts_of(number, segment, len(content), hashlib.sha256(content).hexdigest())


def facts_of(number: int, segment: Segment, size: int, sha256: str) -> SegmentFacts:
    """Collect what the store remembers of a segment whose file has this size and checksum."""
    largest = 0.0
    for start in range(0, len(segment.vectors), BLOCK):
        block = segment.decoded(slice(start, start + BLOCK)).astype(np.float64)
        largest = max(largest, float(np.linalg.norm(block, axis=1).max()))
    return SegmentFacts(
        number=number,
        first=int(segment.ordinals[0]),
        documents=len(segment.ordinals),
        vectors=len(segment.vectors),
        bytes=size,
        sha256=sha256,
        norm=largest,
    )


def map_segment(folder: Path, facts: SegmentFacts) -> Segment:
    """Map a segment into memory; its size must be the one that was written."""
    path = segment_path(folder, facts.number)
    size = path.stat().st_size
    if size != facts.bytes:
        raise damaged_segment(path, f"it has {size} bytes and should have {facts.bytes}")
    try:
        arrays = map_arrays(path)
        scales = arrays.get("scales")
        segment = Segment(
            arrays["vectors"],
            np.array(arrays["ordinals"]),
            np.array(arrays["counts"]),
            None if scales is None else np.array(scales),
            facts.sha256,
        )
    except HeaderError as error:
        raise damaged_segment(path, "its header is not readable") from error
    except (KeyError, TypeError, ValueError) as error:
        raise damaged_segment(path, "its header does not describe its content") from error
    if not _fits(segment, facts):
        raise damaged_segment(path, "its documents and vectors are not those that were written")
    return segment


class HeaderError(ValueError):
    """A file that does not begin as a safetensors file does."""


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Map the arrays of a safetensors file; nothing but its header is read."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise HeaderError("the header is longer than the file")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise HeaderError("the header is not JSON") from error
    if not isinstance(header, dict):
        raise TypeError("the header names no arrays")
    return {
        name: _map(path, entry, 8 + length)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def sound_segment(folder: Path, facts: SegmentFacts) -> Segment:
    """Map a segment that is to be rewritten: its damage would get a new, valid checksum."""
    path = segment_path(folder, facts.number)
    try:
        segment = map_segment(folder, facts)
        if sha256_of(path) != facts.sha256:
            raise damaged_segment(path, "its content is not what was written")
    except FileNotFoundError as error:
        raise damaged_segment(path, "it is missing") from error
    return segment


def damaged_segment(path: Path, how: str) -> IndexFolderError:
    """Say that a segment is damaged, and what to do."""
    index = path.parent.parent
    return IndexFolderError(
        f"{path} is damaged: {how}; the documents themselves are safe: run "
        f"`pseudoquery verify {index} --repair` to make their vectors anew."
    )


def _fits(segment: Segment, facts: SegmentFacts) -> bool:
    """Check what costs nothing, so that readers never look up a vector beyond the file's end."""
    return (
        segment.vectors.ndim == 2
        and len(segment.ordinals) == len(segment.counts) == facts.documents
        and len(segment.vectors) == int(segment.counts.sum()) == facts.vectors
        and (segment.scales is not None) == (segment.vectors.dtype == np.int8)
        and (segment.scales is None or segment.scales.shape == segment.vectors.shape[:1])
        and int(segment.counts.min(initial=0)) >= 0
        and bool((np.diff(segment.ordinals) > 0).all())
    )


def _map(path: Path, entry: dict[str, Any], start: int) -> NDArray[Any]:
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    shape = tuple(entry["shape"])
    first, end = entry["data_offsets"]
    if math.prod(shape) * dtype.itemsize != end - first:
        raise ValueError("the shape does not fit the content")
    if 0 in shape:
        return np.zeros(shape, dtype=dtype)
    # Nobody writes to it; but torch takes only memory that could be written to, and this is a
    # mapping of which a change would stay in this process.
    return np.memmap(path, dtype=dtype, mode="c", offset=start + first, shape=shape)
