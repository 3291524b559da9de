"""New segments: made of encoded documents, joined from others, or with documents left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudoquery.errors import IndexFolderError
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.storage.int8_codes import quantise
from pseudoquery.storage.schema import FORMAT_WITH_TOKENS, Settings
from pseudoquery.storage.segments import VECTOR_TYPES, Segment, SegmentTokens
from pseudoquery.storage.token_layout import pack_layout


def segment_of_documents(
    documents: Sequence[DocumentVectors], settings: Settings, ordinals: Sequence[int] | None = None
) -> Segment:
    """Make a segment of encoded documents; without ordinals they are counted from 0."""
    numbers = range(len(documents)) if ordinals is None else ordinals
    vectors = [document.vectors.reshape(-1, settings.dimension) for document in documents]
    empty = np.zeros((0, settings.dimension), dtype=np.float32)
    segment = make_segment(
        np.concatenate([empty, *vectors]),
        np.array(numbers, dtype=np.int64),
        np.array([len(array) for array in vectors], dtype=np.int64),
        VECTOR_TYPES[settings.vector_type],
    )
    tokens = _tokens_of(documents) if settings.format >= FORMAT_WITH_TOKENS else None
    return replace(segment, tokens=tokens)


def _tokens_of(documents: Sequence[DocumentVectors]) -> SegmentTokens:
    layouts = [pack_layout(document.spans, document.owners) for document in documents]
    nothing = np.zeros(0, dtype=np.uint8)
    return SegmentTokens(
        np.array([len(document.owners) for document in documents], dtype=np.int64),
        np.concatenate([nothing, *(document.codes for document in documents)]),
        np.frombuffer(b"".join(layouts), dtype=np.uint8),
        np.array([len(layout) for layout in layouts], dtype=np.int64),
    )


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
        tokens=_join_tokens([segment.tokens for segment in segments if segment.tokens is not None]),
    )


def _join_tokens(tokens: Sequence[SegmentTokens]) -> SegmentTokens | None:
    if not tokens:
        return None
    return SegmentTokens(
        np.concatenate([part.counts for part in tokens]),
        np.concatenate([part.codes for part in tokens]),
        np.concatenate([part.layouts for part in tokens]),
        np.concatenate([part.layout_sizes for part in tokens]),
    )


def drop_documents(segment: Segment, dropped: NDArray[np.int64]) -> Segment:
    """Leave out the vectors and tokens of the documents with these ordinals."""
    remaining = ~np.isin(segment.ordinals, dropped)
    rows = np.repeat(remaining, segment.counts)
    return Segment(
        segment.vectors[rows],
        segment.ordinals[remaining],
        segment.counts[remaining],
        None if segment.scales is None else segment.scales[rows],
        tokens=None if segment.tokens is None else _select_tokens(segment.tokens, remaining),
    )


def _select_tokens(tokens: SegmentTokens, remaining: NDArray[np.bool_]) -> SegmentTokens:
    code_sizes = tokens.counts * tokens.bytes_per_token
    return SegmentTokens(
        tokens.counts[remaining],
        tokens.codes[np.repeat(remaining, code_sizes)],
        tokens.layouts[np.repeat(remaining, tokens.layout_sizes)],
        tokens.layout_sizes[remaining],
    )
