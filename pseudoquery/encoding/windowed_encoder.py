"""Long texts through the encoder with gradients: the windows of a batch in, whole texts out.

Training reads a document exactly as an index does, through the same overlapping windows, so that no
answer is cut away. Windows of like length go through the encoder together, as most of a batch would
be padding otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.embed import TokenEncoder, WindowBatch, pad_windows, run_windows
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.encoding.token_cache import Windowed
from pseudoquery.encoding.windows import Task

ENCODED_TOKENS = {"cpu": 4096, "gpu": 131_072}
"""Tokens that go through the encoder at once when no gradient is needed."""
LENGTHS = 64
"""On a CPU, windows go together if their lengths are between the same multiples of this; it is also
the smallest width on a GPU."""
WIDTHS, ROWS = 256, 32
"""On a GPU, numbers of tokens and of windows are rounded up to multiples of these."""


def collate(texts: Sequence[Windowed]) -> dict[str, Tensor]:
    """Pad a batch to (texts, windows, width); what is padding has the attention mask 0."""
    windows = max(len(text.ids) for text in texts)
    width = _round_width(max(len(ids) for text in texts for ids in text.ids))
    nothing = np.zeros(0, np.int32), np.zeros(0, np.bool_)
    flat = []
    for text in texts:
        flat += [*zip(text.ids, text.kept, strict=True)]
        flat += [nothing] * (windows - len(text.ids))
    padded = pad_windows(flat, width)
    names = ("input_ids", "attention_mask", "kept")
    return {
        name: values.view(len(texts), windows, width)
        for name, values in zip(names, padded, strict=True)
    }


class WindowedEncoder(MultiVectorEncoder):
    """A MultiVectorEncoder that also takes batches of windowed texts."""

    def forward(self, input: dict[str, Any], **kwargs: Any) -> dict[str, Any]:  # noqa: A002
        """Embed a batch as ever or, if its token ids are (texts, windows, width), whole texts."""
        if input["input_ids"].dim() == 2:
            return super().forward(input, **kwargs)
        task = kwargs.get("task")
        pooled: dict[str, Any] = pooling_of(self)(self._read(input, task), task=task)
        return pooled

    def _read(self, batch: dict[str, Any], task: Task | None) -> dict[str, Any]:
        """Run all windows through the encoder; put each text's kept tokens side by side."""
        texts, windows, _ = batch["input_ids"].shape
        ids, mask, kept = (
            batch[key].flatten(0, 1) for key in ("input_ids", "attention_mask", "kept")
        )
        counts = kept.view(texts, -1).sum(dim=1)
        # One wait for the device, not many: each would let its queue run dry.
        *lengths, longest = torch.cat([mask.sum(dim=1), counts.max()[None]]).tolist()
        position = (kept.view(texts, -1).cumsum(dim=1) - 1).view_as(ids)
        owner = torch.arange(len(ids), device=ids.device)[:, None] // windows
        # Tokens that are not kept all go to one last position, which is then cut off.
        nowhere = texts * longest
        target = torch.where(kept.bool(), owner * longest + position, nowhere)
        embeddings, targets = [], []
        batches = _batches_alike(lengths, few_shapes=_wants_few_shapes(ids.device))
        encode = TokenEncoder(list(self)[:-1], task)
        for part, tokens in run_windows(encode, ids, mask, batches):
            embeddings.append(tokens.flatten(0, 1))
            targets.append(target[part.rows, : part.width].flatten())
        values = torch.cat(embeddings)
        whole = values.new_zeros(nowhere + 1, values.shape[-1])
        whole = whole.index_copy(0, torch.cat(targets), values)[:nowhere]
        whole_ids = ids.new_zeros(nowhere + 1).index_copy(0, target.flatten(), ids.flatten())
        whole_ids = whole_ids[:nowhere].view(texts, longest)
        real = torch.arange(longest, device=ids.device) < counts[:, None]
        special = torch.isin(whole_ids, pooling_of(self).special_ids.to(ids.device)) & real
        return {
            "token_embeddings": whole.view(texts, longest, -1),
            "attention_mask": real,
            "special_tokens_mask": special,
        }


def encode_windowed(
    model: MultiVectorEncoder, texts: Sequence[Windowed], task: Task
) -> list[tuple[Tensor, Tensor, list[int]]]:
    """Encode tokenised texts in batches of like length, without gradients.

    Each batch is (texts, vectors, dim), its mask (texts, vectors), and which texts these are.
    """
    return [
        (*encode_batch(model, [texts[row] for row in rows], task), rows)
        for rows in batches_of_like_length(texts, model.device)
    ]


def batches_of_like_length(texts: Sequence[Windowed], device: torch.device) -> Iterator[list[int]]:
    """Cut texts into batches for one pass each, longest first; yields which texts they are."""
    lengths = [len(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda row: -lengths[row])
    limit = ENCODED_TOKENS["cpu" if device.type == "cpu" else "gpu"]
    start = 0
    while start < len(order):
        rows = order[start : start + max(1, limit // max(lengths[order[start]], 1))]
        yield rows
        start += len(rows)


def encode_batch(
    model: MultiVectorEncoder, texts: Sequence[Windowed], task: Task
) -> tuple[Tensor, Tensor]:
    """Encode tokenised texts in one pass: vectors (texts, vectors, dim) and their mask."""
    model.eval()
    features = {key: value.to(model.device) for key, value in collate(texts).items()}
    with torch.inference_mode():
        outputs = model(features, task=task)
    return outputs["token_embeddings"].float(), outputs["attention_mask"].bool()


def _round_width(length: int) -> int:
    return LENGTHS if length <= LENGTHS else -(-length // WIDTHS) * WIDTHS


def _wants_few_shapes(device: torch.device) -> bool:
    """Say whether few shapes are faster: a GPU's libraries take milliseconds to plan for each."""
    return device.type != "cpu"


def _batches_alike(lengths: list[int], *, few_shapes: bool) -> Iterator[WindowBatch]:
    """Group windows of like length; an empty window is in no group.

    For few shapes, padding makes windows wider, and a repeated row makes batches larger.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for row, length in enumerate(lengths):
        if length:
            groups[_round_width(length) if few_shapes else (length - 1) // LENGTHS].append(row)
    for key, rows in groups.items():
        width = key if few_shapes else max(lengths[row] for row in rows)
        repeated = -len(rows) % ROWS if few_shapes else 0
        yield WindowBatch(torch.tensor(rows + rows[:1] * repeated), width, len(rows))
