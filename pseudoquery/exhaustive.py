"""Rank a whole corpus for many queries at once, by brute force on the model's device.

This is for training and evaluation, where every query is asked of every document; a search of one
query goes through `search`, which proves its answers. Scores are in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pseudoquery.representation import Representation
from pseudoquery.scores import similarity_matrix

ELEMENTS = {"cpu": 1 << 24, "cuda": 1 << 29}
"""Dot products held at once."""


def padded(vectors: Sequence[NDArray[np.float32]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Stack ragged vectors: (texts, widest, dim) and their mask (texts, widest)."""
    counts = torch.tensor([len(own) for own in vectors])
    stacked = torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(own) for own in vectors], batch_first=True
    )
    mask = torch.arange(stacked.shape[1]) < counts[:, None]
    return stacked.to(device), mask.to(device)


def rank_all(
    queries: Sequence[NDArray[np.float32]],
    documents: Sequence[NDArray[np.float32]],
    settings: Representation,
    top: int,
    device: torch.device,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the best documents' places (queries, top) and scores; equal ones in corpus order."""
    asked, asked_mask = padded(queries, device)
    values, mask = padded(documents, device)
    top = min(top, len(documents))
    per_query = values.shape[0] * values.shape[1] * asked.shape[1]
    step = max(1, ELEMENTS["cpu" if device.type == "cpu" else "cuda"] // max(per_query, 1))
    places, scores = [], []
    for start in range(0, len(asked), step):
        found = similarity_matrix(
            asked[start : start + step],
            values,
            asked_mask[start : start + step],
            mask,
            score=settings.score,
            scale=settings.scale,
        )
        best = found.sort(dim=1, descending=True, stable=True)
        places.append(best.indices[:, :top].cpu())
        scores.append(best.values[:, :top].cpu())
    return torch.cat(places).numpy(), torch.cat(scores).numpy()
