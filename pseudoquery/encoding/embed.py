"""From windows to token embeddings, in batches of like length; training takes the same path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.precision import by_openvino, precision_of
from pseudoquery.encoding.windows import Task, Window

BATCH_TOKENS = {"cpu": 2048, "gpu": 65_536}
"""Padded tokens in one pass: few enough for a CPU's cache, many enough to keep a GPU busy."""
FEW_TOKENS = 64
"""So few, a question's say, are pooled sooner than a thread begins."""


class WindowBatch(NamedTuple):
    """Windows of like length that go through the encoder together."""

    rows: Tensor
    """Which windows; those after the first `real` repeat one, to fill up a shape."""
    width: int
    """The number of tokens to which they are padded."""
    real: int


def embed(model: MultiVectorEncoder, windows: Sequence[Window], task: Task) -> list[Tensor]:
    """Run the encoder over windows, without gradients: (kept tokens, dim) for each."""
    embedded: list[Tensor] = [torch.empty(0)] * len(windows)
    if not windows:
        return embedded
    lengths = {row: len(window.ids) for row, window in enumerate(windows)}
    # A GPU's matrix units and attention kernels want lengths that are multiples of 64.
    step = 1 if model.device.type == "cpu" else 64
    ids, mask, kept = pad_windows(
        [(window.ids, window.kept) for window in windows],
        -(-max(lengths.values()) // step) * step,
        model.tokenizer.pad_token_id or 0,
    )
    order = sorted(lengths, key=lambda row: -lengths[row])
    batches = (
        WindowBatch(torch.tensor(rows), -(-lengths[rows[0]] // step) * step, len(rows))
        for rows in batches_by_length(order, lengths, model.device)
    )
    model.eval()
    encode = _encoder(model, task)
    half = torch.autocast(
        model.device.type, torch.bfloat16, enabled=precision_of(model) == "bfloat16"
    )
    with torch.inference_mode(), half:
        ids, mask, kept = (padded.to(model.device) for padded in (ids, mask, kept))
        for batch, tokens in run_windows(encode, ids, mask, batches):
            for row, embeddings in zip(batch.rows.tolist(), tokens, strict=True):
                embedded[row] = embeddings[kept[row, : batch.width]].float()
    return embedded


def pad_windows(
    windows: Sequence[tuple[Any, Any]], width: int, padding: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Pad windows of (token ids, kept) to (windows, width): ids, attention mask, and kept."""
    shape = (len(windows), width)
    ids, mask = np.full(shape, padding, np.int64), np.zeros(shape, np.int64)
    kept = np.zeros(shape, np.bool_)
    for row, (window_ids, window_kept) in enumerate(windows):
        ids[row, : len(window_ids)] = window_ids
        mask[row, : len(window_ids)] = 1
        kept[row, : len(window_ids)] = window_kept
    return torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(kept)


def run_windows(
    encode: Callable[[Tensor, Tensor], Tensor],
    ids: Tensor,
    mask: Tensor,
    batches: Iterable[WindowBatch],
) -> Iterator[tuple[WindowBatch, Tensor]]:
    """Run padded windows (windows, width) through the encoder, batch by batch.

    Yields each batch without repeated rows, and its tokens' embeddings (real, width, dim). Whoever
    needs gradients gets them.
    """
    for rows, width, real in batches:
        rows = rows.to(ids.device)
        tokens = encode(ids[rows, :width], mask[rows, :width])
        yield WindowBatch(rows[:real], width, real), tokens[:real]


class TokenEncoder(torch.nn.Module):
    """The modules of a model that embed tokens, as one."""

    def __init__(self, modules: Iterable[torch.nn.Module], task: Task | None) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(modules)
        accept = any("task" in getattr(part, "forward_kwargs", ()) for part in self.parts)
        self.task = task if accept else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(windows, tokens) -> (windows, tokens, dim)."""
        features: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        for part in self.parts:
            accepts_task = "task" in getattr(part, "forward_kwargs", ())
            features = part(features, **({"task": self.task} if accepts_task else {}))
        return cast(Tensor, features["token_embeddings"])

    def extra_repr(self) -> str:
        """Name the task, so that encoders for different tasks differ in what they print."""
        return f"task={self.task}"


def _encoder(model: MultiVectorEncoder, task: Task) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what embeds tokens, given their ids and which of them are real."""
    encoder = TokenEncoder(list(model)[:-1], task)
    if not by_openvino(precision_of(model)):
        return encoder
    from pseudoquery.encoding.openvino import openvino_encoder

    return openvino_encoder(model, encoder)


def batches_by_length(
    order: Iterable[int], lengths: Mapping[int, int], device: torch.device
) -> Iterator[list[int]]:
    """Cut rows, sorted by falling length, into batches of about BATCH_TOKENS padded tokens."""
    limit = BATCH_TOKENS["cpu" if device.type == "cpu" else "gpu"]
    batch: list[int] = []
    for row in order:
        if batch and lengths[batch[0]] * (len(batch) + 1) > limit:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
