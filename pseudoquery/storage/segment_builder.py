"""New segments: made of vectors, joined from others, or with documents left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import IndexFolderError
from pseudoquery.storage.int8_codes import quantise
from pseudoquery.storage.segments import Segment


def segment_of_vectors(
    vectors: Sequence[NDArray[np.float32]], dimension: int, dtype: np.dtype[Any]
) -> Segment:
    """Make a segment of the vectors of documents, with ordinals from 0; a writer replaces these."""
    counts = np.array([len(array) for array in vectors], dtype=np.int64)
    values = np.concatenate([array.reshape(-1, dimension) for array in vectors])
    return make_segment(values, np.arange(len(vectors), dtype=np.int64), counts, dtype)


def make_segment(
    vectors: NDArray[np.float32],
    ordinals: NDArray[np.int64],
    counts: NDArray[np.int64],
    dtype: np.dtype[Any],
) -> Segment:
    """Convert vectors to the type that an index stores."""
    values: NDArray[Any]
    with np.errstate(over="ignore", invalid="ignore"):  # checked right below
        if dtype == np.int8:
            codes = quantise(vectors)
            values, scales = codes.values, codes.scales
        else:
            values, scales = vectors.astype(dtype), None
    if not np.isfinite(values if scales is None else scales).all():
        raise IndexFolderError(
            f"a vector does not fit into {dtype} (it is infinite or not a number); "
            "create the index with vector_type='float32'."
        )
    return Segment(values, ordinals, counts, scales)


def join_segments(segments: Sequence[Segment]) -> Segment:
    """Join segments, in order, into one."""
    return Segment(
        np.concatenate([segment.vectors for segment in segments]),
        np.concatenate([segment.ordinals for segment in segments]),
        np.concatenate([segment.counts for segment in segments]),
        None
        if segments[0].scales is None
        else np.concatenate([segment.scales for segment in segments if segment.scales is not None]),
    )


def drop_documents(segment: Segment, dropped: NDArray[np.int64]) -> Segment:
    """Leave out the vectors of the documents with these ordinals."""
    remaining = ~np.isin(segment.ordinals, dropped)
    rows = np.repeat(remaining, segment.counts)
    return Segment(
        segment.vectors[rows],
        segment.ordinals[remaining],
        segment.counts[remaining],
        None if segment.scales is None else segment.scales[rows],
    )
