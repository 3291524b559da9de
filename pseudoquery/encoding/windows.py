"""Texts cut into windows that the encoder can read, with overlap; nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.errors import ModelError

OVERLAP = 1 / 8
"""The part of a window that it shares with the next."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of one text, short enough for the encoder."""

    text: int
    ids: list[int]
    special: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    """False for tokens that the neighbouring window represents better."""
    spans: NDArray[np.int64]
    """(tokens, 2): where each token stands in the text, as character offsets."""


def split(
    model: MultiVectorEncoder, texts: Sequence[str], task: Task, long: Long
) -> tuple[list[Window], set[int]]:
    """Tokenise texts into overlapping windows; also say which texts were cut by truncation."""
    if not texts:
        return [], set()
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            "this model's tokenizer can't tell where its tokens stand in the text; "
            "choose a model with a fast tokenizer (a tokenizer.json file)."
        )
    prompt = model.prompts.get(task) or ""
    # Whole texts: what tokenizers 0.23.1 and 0.23.2 cut into windows themselves loses its end.
    batch = tokenizer(
        [prompt + text for text in texts],
        truncation=False,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # it would say that the encoder can't read so much at once
    )
    special_ids = pooling_of(model).special_ids.numpy()
    limit = window_length(model)
    windows, cut = [], set()
    for text, ids in enumerate(batch["input_ids"]):
        added = np.array(batch["special_tokens_mask"][text], dtype=bool)
        # A "[SEP]" that the text itself contains is the same token to the encoder.
        special = added | np.isin(ids, special_ids)
        spans = np.array(batch["offset_mapping"][text], dtype=np.int64).reshape(-1, 2)
        spans = np.where(special[:, None], 0, np.maximum(spans - len(prompt), 0))
        for rows, kept in _cut(added, limit, long):
            window_ids = [ids[row] for row in rows.tolist()]
            windows.append(Window(text, window_ids, special[rows], kept, spans[rows]))
            if long == "truncate" and len(rows) < len(ids):
                cut.add(text)
    return windows, cut


def _cut(
    added: NDArray[np.bool_], limit: int, long: Long
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield the tokens of each window of a text, and which of them it represents best.

    The special tokens that were added around the text stand around every window.
    """
    read = np.flatnonzero(~added)
    first, end = (read[0], read[-1] + 1) if len(read) else (len(added), len(added))
    before, after = np.arange(first), np.arange(end, len(added))
    room = max(limit - len(before) - len(after), 1)
    overlap = min(int(limit * OVERLAP), room - 1)
    starts = range(0, max(len(read) - overlap, 1), room - overlap)
    if long == "truncate":
        starts = starts[:1]
    for start in starts:
        part = read[start : start + room]
        rows = np.concatenate([before, part, after])
        kept = np.ones(len(rows), dtype=bool)
        if start:
            kept[first : first + overlap // 2] = False
        if start != starts[-1]:
            stop = first + len(part)
            kept[stop - (overlap - overlap // 2) : stop] = False
        yield rows, kept


def window_length(model: MultiVectorEncoder) -> int:
    """How many tokens the encoder reads at once, special tokens included."""
    limit = model.max_seq_length or model.tokenizer.model_max_length
    return min(int(limit), 8192)


def tokenizer_settings(model: MultiVectorEncoder) -> dict[str, Any]:
    """Return all that makes a tokenizer what it is."""
    settings: dict[str, Any] = json.loads(model.tokenizer.backend_tokenizer.to_str())
    # It keeps the truncation and padding of its last call, which say nothing of it.
    return settings | {"truncation": None, "padding": None}


Long = Literal["windows", "truncate"]
Task = Literal["query", "document"]
