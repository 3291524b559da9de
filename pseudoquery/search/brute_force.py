"""Rank a whole corpus for many queries at once, by brute force on the model's device.

This is for training and evaluation, where every query is compared with every document. A search
for one query goes through `two_step`, which proves its answers. Scores are in single precision, but
for late interaction while a training in mixed precision mines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pseudoquery.method.maxsim import maxsim_scores
from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import similarity_matrix

ELEMENTS = {"cpu": 1 << 24, "gpu": 1 << 29}
"""Dot products held at once."""

EncodedBatch = tuple[Tensor, Tensor, Sequence[int]]
"""Vectors of texts (texts, widest, dim), their mask (texts, widest), and the texts' positions."""


def rank_all(
    queries: Sequence[EncodedBatch],
    documents: Sequence[EncodedBatch],
    settings: Representation,
    top: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the best documents' positions (queries, top) and scores; ties in corpus order."""
    query_count = sum(len(rows) for *_, rows in queries)
    document_count = sum(len(columns) for *_, columns in documents)
    positions = torch.empty(query_count, min(top, document_count), dtype=torch.int64)
    scores = torch.empty(query_count, min(top, document_count))
    mixed = torch.is_autocast_enabled("cuda")
    for values, mask, rows in _few_at_once(queries, documents, document_count):
        table = torch.empty(len(rows), document_count, device=values.device)
        for document_values, document_mask, columns in documents:
            with torch.autocast(values.device.type, enabled=False), _product_precision(values):
                if settings.score == "max":
                    scored = settings.scale * maxsim_scores(
                        values, document_values, mask, document_mask, half=mixed and values.is_cuda
                    )
                else:  # one vector's dots in half of the digits can't rank, not even for mining
                    scored = similarity_matrix(
                        values, document_values, mask, document_mask, scale=settings.scale
                    )
            table[:, torch.tensor(columns, device=table.device)] = scored
        best = table.sort(dim=1, descending=True, stable=True)
        targets = torch.tensor(rows)
        positions[targets] = best.indices[:, :top].cpu()
        scores[targets] = best.values[:, :top].cpu()
    return positions.numpy(), scores.numpy()


@contextmanager
def _product_precision(queries: Tensor) -> Iterator[None]:
    """Let a GPU's tensor cores multiply where all tokens are compared with all tokens.

    Their 10 bits after the point err far less than the sum over a query's tokens differs.
    """
    before = torch.get_float32_matmul_precision()
    many = queries.is_cuda and queries.shape[1] > 1
    torch.set_float32_matmul_precision("high" if many else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _few_at_once(
    queries: Sequence[EncodedBatch], documents: Sequence[EncodedBatch], document_count: int
) -> Iterator[EncodedBatch]:
    """Cut batches of queries so small that their dot products can be held."""
    widest = max((mask.numel() for _, mask, _ in documents), default=1)
    for values, mask, rows in queries:
        limit = ELEMENTS["cpu" if values.device.type == "cpu" else "gpu"]
        step = max(1, limit // max(widest * values.shape[1], document_count, 1))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            yield values[part], mask[part], rows[part]
