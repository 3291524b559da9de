"""Immutable files of vectors: written once, synced, renamed, then only mapped.

A segment is a safetensors file with `vectors` (vectors, dim), and for each of its documents, in
order, its ordinal in the store (`ordinals`) and how many of the vectors belong to it (`counts`).
Vectors in 8 bits come with the length of their steps (`scales`).

Since format 2 a segment also has the tokens of its documents: how many there are (`token_counts`),
their codes (`token_codes`), and where they stand in the text (`layouts`, of `layout_sizes` bytes).

The newer ones have a sum of their header and one of each block, by which they are compared as
they are used (`sums`).
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from pseudoquery.files import write_atomically
from pseudoquery.storage.mapped_file import map_file, read_ahead
from pseudoquery.storage.segment_blocks import SUMS, SegmentBlocks, damaged_segment, sums_of

VECTOR_TYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "int8": np.dtype(np.int8),
}
BLOCK = 4096
"""Vectors that are brought to double precision at once."""
_DTYPES = {
    "F16": np.float16,
    "F32": np.float32,
    "I64": np.int64,
    "I8": np.int8,
    "U8": np.uint8,
}


@dataclass(frozen=True)
class SegmentTokens:
    """What a segment knows of its documents' tokens."""

    counts: NDArray[np.int64]
    """(documents,): how many tokens each document has."""
    codes: NDArray[np.uint8]
    """The codes of all documents, one after the other; none if the index keeps none."""
    layouts: NDArray[np.uint8]
    """Where the tokens stand, as `token_layout.pack_layout` writes it."""
    layout_sizes: NDArray[np.int64]
    """(documents,): how many of these bytes each document has."""

    @cached_property
    def bytes_per_token(self) -> int:
        """How many bytes the code of a token has."""
        return len(self.codes) // max(int(self.counts.sum()), 1)

    @cached_property
    def code_starts(self) -> NDArray[np.int64]:
        """(documents + 1,): where the codes of each document begin, and the last ones end."""
        return np.concatenate([[0], np.cumsum(self.counts * self.bytes_per_token)]).astype(np.int64)

    @cached_property
    def layout_starts(self) -> NDArray[np.int64]:
        """(documents + 1,): where the layout of each document begins, and the last one ends."""
        return np.concatenate([[0], np.cumsum(self.layout_sizes)]).astype(np.int64)

    @property
    def bytes(self) -> int:
        """How many bytes codes and layouts have."""
        return len(self.codes) + len(self.layouts)


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
    tokens: SegmentTokens | None = None
    """None in folders of format 1."""
    file: NDArray[np.uint8] | None = None
    """All of its file, if it has one."""
    path: Path = Path()
    """Where that is, or was."""
    blocks: SegmentBlocks | None = None
    """What compares parts of the file, if it has sums of them."""

    def check(self) -> None:
        """Compare the vectors with what was written; without sums, all was compared before."""
        if self.blocks is not None:
            self.blocks.check(["vectors"])

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
    if segment.tokens is not None:
        arrays |= token_arrays(segment.tokens)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = _sealed(save({**arrays, SUMS: sums_of(arrays)}))
    write_atomically(segment_path(folder, number), content)
    return facts_of(number, segment, len(content), hashlib.sha256(content).hexdigest())


def token_arrays(tokens: SegmentTokens) -> dict[str, NDArray[Any]]:
    """Name the arrays in which a file keeps tokens."""
    return {
        "token_counts": tokens.counts,
        "token_codes": tokens.codes,
        "layouts": tokens.layouts,
        "layout_sizes": tokens.layout_sizes,
    }


def tokens_in(arrays: Mapping[str, NDArray[Any]]) -> SegmentTokens | None:
    """Find the tokens among the arrays of a file, if it has any."""
    if "token_counts" not in arrays:
        return None
    return SegmentTokens(
        np.array(arrays["token_counts"]),
        arrays["token_codes"],
        arrays["layouts"],
        np.array(arrays["layout_sizes"]),
    )


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
        file = _map_file(path)
        arrays = _arrays_in(file)
        scales = arrays.get("scales")
        segment = Segment(
            arrays["vectors"],
            np.array(arrays["ordinals"]),
            np.array(arrays["counts"]),
            None if scales is None else np.array(scales),
            facts.sha256,
            tokens_in(arrays),
            file,
            path,
            SegmentBlocks(path, arrays, _header_of(file)) if SUMS in arrays else None,
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
    return _arrays_in(_map_file(path))


def _map_file(path: Path) -> NDArray[np.uint8]:
    if not path.stat().st_size:
        raise HeaderError("the file is empty")
    return map_file(path)


def _sealed(content: bytes) -> bytes:
    """Put the sum of a file's header into the place that its sums have for it."""
    file = np.frombuffer(bytearray(content), np.uint8)
    _arrays_in(file)[SUMS][0] = zlib.crc32(_header_of(file).data)
    return file.tobytes()


def _header_of(file: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Find the header of a safetensors file, with its length before it."""
    length = int.from_bytes(file[:8].tobytes(), "little")
    if length > len(file):
        raise HeaderError("the header is longer than the file")
    return file[: 8 + length]


def _arrays_in(file: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Find the arrays of a safetensors file; all of them share its mapping."""
    header = _header_of(file)
    try:
        entries = json.loads(header[8:].tobytes())
    except ValueError as error:
        raise HeaderError("the header is not JSON") from error
    if not isinstance(entries, dict):
        raise TypeError("the header names no arrays")
    content = file[len(header) :]
    return {
        name: _array_of(content, entry) for name, entry in entries.items() if name != "__metadata__"
    }


def sound_segment(folder: Path, facts: SegmentFacts) -> Segment:
    """Map a segment that is to be rewritten: its damage would get a new, valid checksum."""
    try:
        segment = map_segment(folder, facts)
    except FileNotFoundError as error:
        path = segment_path(folder, facts.number)
        raise damaged_segment(path, "it is missing") from error
    check_content(segment)
    return segment


def check_content(segment: Segment) -> None:
    """Compare a mapped segment with its checksum."""
    if segment.file is None:
        return
    try:
        read_ahead(segment.file)
    except OSError as error:
        raise damaged_segment(segment.path, f"it can't be read ({error})") from error
    if hashlib.sha256(segment.file.data).hexdigest() != segment.name:
        raise damaged_segment(segment.path, "its content is not what was written")


def _fits(segment: Segment, facts: SegmentFacts) -> bool:
    """Check what costs nothing, so that readers never look up a vector beyond the file's end."""
    return (
        segment.vectors.ndim == 2
        and segment.ordinals[:1].tolist() == [facts.first]
        and len(segment.ordinals) == len(segment.counts) == facts.documents
        and len(segment.vectors) == int(segment.counts.sum()) == facts.vectors
        and (segment.scales is not None) == (segment.vectors.dtype == np.int8)
        and (segment.scales is None or segment.scales.shape == segment.vectors.shape[:1])
        and int(segment.counts.min(initial=0)) >= 0
        and bool((np.diff(segment.ordinals) > 0).all())
        and (segment.tokens is None or _tokens_fit(segment.tokens, facts.documents))
    )


def _tokens_fit(tokens: SegmentTokens, documents: int) -> bool:
    total = int(tokens.counts.sum())
    return (
        len(tokens.counts) == len(tokens.layout_sizes) == documents
        and tokens.codes.ndim == tokens.layouts.ndim == 1
        and len(tokens.codes) == total * tokens.bytes_per_token
        and len(tokens.layouts) == int(tokens.layout_sizes.sum())
        and int(tokens.counts.min(initial=0)) >= 0
        and int(tokens.layout_sizes.min(initial=0)) >= 0
    )


def _array_of(content: NDArray[np.uint8], entry: dict[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    shape = tuple(entry["shape"])
    first, end = entry["data_offsets"]
    if math.prod(shape) * dtype.itemsize != end - first or not 0 <= first <= end <= len(content):
        raise ValueError("the shape does not fit the content")
    return np.frombuffer(content, dtype, math.prod(shape), first).reshape(shape)
