"""Windows -> token embeddings, in batches of like length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from pseudoquery.encoding.precision import by_openvino, precision_of
from pseudoquery.encoding.windows import Task, Window

BATCH_TOKENS = {"cpu": 2048, "gpu": 65_536}
"""Padded tokens in one pass: few enough for a CPU's cache, many enough to keep a GPU busy."""
FEW_TOKENS = 64
"""So few, a question's say, are pooled sooner than a thread begins."""


def embed(model: MultiVectorEncoder, windows: Sequence[Window], task: Task) -> list[Tensor]:
    """Run the encoder over windows of like length together: (kept tokens, dim) for each."""
    embedded: list[Tensor] = [torch.empty(0)] * len(windows)
    lengths = {index: len(window.ids) for index, window in enumerate(windows)}
    order = sorted(lengths, key=lambda index: -lengths[index])
    model.eval()
    encode = _encoder(model, task)
    half = torch.autocast(
        model.device.type, torch.bfloat16, enabled=precision_of(model) == "bfloat16"
    )
    with torch.inference_mode(), half:
        for batch in batches_by_length(order, lengths, model.device):
            features = model.tokenizer.pad(
                {"input_ids": [windows[index].ids for index in batch]},
                return_tensors="pt",
                # A GPU's matrix units and attention kernels want such lengths.
                pad_to_multiple_of=None if model.device.type == "cpu" else 64,
            ).to(model.device)
            outputs = encode(features["input_ids"], features["attention_mask"])
            real = features["attention_mask"].bool()
            for row, index in enumerate(batch):
                tokens = outputs[row][real[row]].float()
                embedded[index] = tokens[torch.from_numpy(windows[index].kept).to(tokens.device)]
    return embedded


class TokenEncoder(torch.nn.Module):
    """The modules of a model that embed tokens, as one."""

    def __init__(self, modules: Iterable[torch.nn.Module], task: Task) -> None:
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
        """Tell encoders for different tasks apart."""
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
    """Cut indices, sorted by falling length, into batches of about BATCH_TOKENS padded tokens."""
    limit = BATCH_TOKENS["cpu" if device.type == "cpu" else "gpu"]
    batch: list[int] = []
    for index in order:
        if batch and lengths[batch[0]] * (len(batch) + 1) > limit:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
