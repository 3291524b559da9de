"""Long texts through the encoder with gradients: the windows of a batch in, whole texts out.

Training reads a document exactly as an index does, through the same overlapping windows, so that no
answer is cut away. Windows of like length go through the encoder together, as most of a batch would
be padding otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pseudoquery.encoding import Task, Window, pooling_of, split

TEXTS_AT_ONCE = 4096
LENGTHS = 128
"""Windows go together if their lengths are between the same multiples of this."""
ENCODED_TOKENS = {"cpu": 4096, "gpu": 131_072}
"""Tokens that go through the encoder at once when no gradient is needed."""

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's, which makes a plan of several milliseconds for each new shape of a batch."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """A tokenised text."""

    ids: tuple[Tensor, ...]
    """The token ids of each window, special tokens included."""
    kept: tuple[Tensor, ...]
    """False for a token that another window represents better."""

    def __len__(self) -> int:
        return sum(int(kept.sum()) for kept in self.kept)


def tokenise(
    model: MultiVectorEncoder, texts: Sequence[str], task: Task, most: int | None = None
) -> list[Windowed]:
    """Cut texts into the windows in which the model reads them; keep of each `most` tokens."""
    tokenised = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        windows, _ = split(model, texts[start : start + TEXTS_AT_ONCE], task, "windows")
        by_text: dict[int, list[Window]] = defaultdict(list)
        for window in windows:
            by_text[window.text].append(window)
        tokenised += [_windowed(own, most) for own in by_text.values()]
    return tokenised


def _windowed(windows: Sequence[Window], most: int | None) -> Windowed:
    """Put a text's windows together, up to the one with which it has `most` tokens."""
    ids, keeps = [], []
    left = most
    for window in windows:
        kept = torch.from_numpy(window.kept)
        if left is not None:
            # What stands at a window's end is kept in the next one, unless none is needed.
            to_the_end = kept.clone()
            to_the_end[len(kept) // 2 :] = True
            if left <= int(to_the_end.sum()):
                kept = to_the_end & (to_the_end.cumsum(0) <= left)
            left -= int(kept.sum())
        ids.append(torch.tensor(window.ids))
        keeps.append(kept)
        if left == 0:
            break
    return Windowed(tuple(ids), tuple(keeps))


def collate(texts: Sequence[Windowed]) -> dict[str, Tensor]:
    """Pad a batch to (texts, windows, width); what is padding has the attention mask 0."""
    windows = max(len(text.ids) for text in texts)
    rows = [
        row * windows + place for row, text in enumerate(texts) for place in range(len(text.ids))
    ]
    ids = torch.nn.utils.rnn.pad_sequence(
        [own for text in texts for own in text.ids], batch_first=True
    )
    lengths = torch.tensor([len(own) for text in texts for own in text.ids])
    kept = torch.nn.utils.rnn.pad_sequence(
        [own for text in texts for own in text.kept], batch_first=True
    )
    real = torch.arange(ids.shape[1]) < lengths[:, None]
    features = {"input_ids": ids, "attention_mask": real.long(), "kept": kept}
    place = torch.tensor(rows)
    return {
        name: value.new_zeros(len(texts) * windows, ids.shape[1])
        .index_copy(0, place, value)
        .view(len(texts), windows, -1)
        for name, value in features.items()
    }


class WindowedEncoder(MultiVectorEncoder):
    """A MultiVectorEncoder that also takes batches of windowed texts."""

    def forward(self, input: dict[str, Any], **kwargs: Any) -> dict[str, Any]:  # noqa: A002
        """Embed a batch as ever or, if its token ids are (texts, windows, width), whole texts."""
        if input["input_ids"].dim() == 2:
            return super().forward(input, **kwargs)
        pooled: dict[str, Any] = pooling_of(self)(self._read(input), task=kwargs.get("task"))
        return pooled

    def _read(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Run all windows through the encoder; put each text's kept tokens side by side."""
        texts = len(batch["input_ids"])
        ids, mask, kept = (
            batch[key].flatten(0, 1) for key in ("input_ids", "attention_mask", "kept")
        )
        kept = kept.bool()
        place = (kept.view(texts, -1).cumsum(dim=1) - 1).view_as(kept)
        longest = int(place.max()) + 1
        width = batch["input_ids"].shape[1]
        owner = torch.arange(len(ids), device=ids.device) // width
        target = owner[:, None] * longest + place
        embeddings, targets = [], []
        for rows, length in _alike(mask.sum(dim=1).tolist()):
            features: dict[str, Any] = {
                "input_ids": ids[rows, :length],
                "attention_mask": mask[rows, :length],
            }
            with sdpa_kernel(ATTENTION):
                for module in list(self)[:-1]:
                    features = module(features)
            taken = kept[rows, :length]
            embeddings.append(features["token_embeddings"][taken])
            targets.append(target[rows, :length][taken])
        values, places = torch.cat(embeddings), torch.cat(targets)
        whole = values.new_zeros(texts * longest, values.shape[-1]).index_copy(0, places, values)
        whole_ids = ids.new_zeros(texts * longest).index_copy(0, target[kept], ids[kept])
        there = torch.zeros_like(whole_ids, dtype=torch.bool).index_fill(0, places, True)
        special = torch.isin(whole_ids, pooling_of(self).special_ids.to(ids.device)) & there
        return {
            "token_embeddings": whole.view(texts, longest, -1),
            "attention_mask": there.view(texts, longest),
            "special_tokens_mask": special.view(texts, longest),
        }


def encode_windowed(
    model: MultiVectorEncoder, texts: Sequence[Windowed], task: Task
) -> list[tuple[Tensor, Tensor, list[int]]]:
    """Encode tokenised texts in batches of like length, without gradients.

    Each batch is (texts, vectors, dim), its mask (texts, vectors), and which texts these are.
    """
    model.eval()
    lengths = [len(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda text: -lengths[text])
    batches = []
    limit = ENCODED_TOKENS["cpu" if model.device.type == "cpu" else "gpu"]
    start = 0
    while start < len(order):
        own = order[start : start + max(1, limit // max(lengths[order[start]], 1))]
        features = {
            key: value.to(model.device) for key, value in collate([texts[i] for i in own]).items()
        }
        with torch.inference_mode():
            outputs = model(features, task=task)
        batches.append((outputs["token_embeddings"].float(), outputs["attention_mask"].bool(), own))
        start += len(own)
    return batches


def _alike(lengths: list[int]) -> Iterator[tuple[list[int], int]]:
    """Group windows of like length: the rows of each group, and its longest; empty rows in none."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row, length in enumerate(lengths):
        if length:
            groups[(length - 1) // LENGTHS].append(row)
    for rows in groups.values():
        yield rows, max(lengths[row] for row in rows)
