"""Late interaction's MaxSim of all queries with all documents, for training and for ranking.

The dot products of all tokens with all tokens are more than a GPU holds, and reading them takes
longer than making them. But of a query's token and a document only the largest counts, and only it
has a gradient: so the largest are looked for a part at a time and, in training, then made again,
with a gradient, as dots of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

DOTS_AT_ONCE = {"cpu": 1 << 24, "gpu": 1 << 30}
PADDING = -1e30
"""A dot that never wins."""
COLUMNS = 8
"""Tensor cores want the length of vectors to be a multiple of this."""


def maxsim_matrix(
    queries: Tensor, documents: Tensor, queries_mask: Tensor, documents_mask: Tensor
) -> Tensor:
    """Score every query (Q, n, dim) against every document (N, k, dim) under masks -> (Q, N).

    The same as `scores.similarity_matrix` with the score "max"; of equal dots, one wins. A document
    without vectors scores minus infinity.
    """
    owner, position = queries_mask.nonzero(as_tuple=True)
    tokens = queries[owner, position]
    count, widest = documents_mask.shape
    # Which of two equal tokens wins is all that half of the digits can change.
    parts = _dots(tokens.detach(), documents.detach(), documents_mask, half=tokens.is_cuda)
    winners = torch.cat([dots.argmax(dim=2) for dots in parts])
    winners += widest * torch.arange(count, device=winners.device)
    best = torch.einsum("td,tbd->tb", tokens, documents.flatten(0, 1)[winners])
    return _per_query(best, owner, len(queries), documents_mask)


def maxsim_scores(
    queries: Tensor,
    documents: Tensor,
    queries_mask: Tensor,
    documents_mask: Tensor,
    *,
    half: bool = False,
) -> Tensor:
    """Score the same, for ranking: without a gradient, and if need be from half of the digits."""
    owner, position = queries_mask.nonzero(as_tuple=True)
    parts = _dots(queries[owner, position], documents, documents_mask, half=half)
    best = torch.cat([dots.amax(dim=2) for dots in parts])
    return _per_query(best.float(), owner, len(queries), documents_mask)


def _per_query(best: Tensor, owner: Tensor, queries: int, documents_mask: Tensor) -> Tensor:
    """Sum each query's largest dots (tokens, documents) -> (queries, documents)."""
    scores = best.new_zeros(queries, len(documents_mask)).index_add(0, owner, best)
    return scores.masked_fill(~documents_mask.any(dim=1), -torch.inf)


def _dots(tokens: Tensor, documents: Tensor, mask: Tensor, *, half: bool) -> Iterator[Tensor]:
    """Multiply a part of the tokens at a time with all vectors: (tokens, documents, widest).

    One more column makes padding lose, so that the products need not be gone through for it.
    """
    more = COLUMNS - tokens.shape[1] % COLUMNS
    tokens = torch.nn.functional.pad(tokens, (0, more))
    tokens[:, -1] = 1.0
    documents = torch.nn.functional.pad(documents, (0, more))
    documents[:, :, -1] = torch.where(mask, 0.0, PADDING)
    if half:
        tokens, documents = tokens.bfloat16(), documents.bfloat16()
    vectors = documents.flatten(0, 1).T
    at_once = DOTS_AT_ONCE["cpu" if tokens.device.type == "cpu" else "gpu"]
    for part in torch.split(tokens, max(1, at_once // max(mask.numel(), 1))):
        yield (part @ vectors).view(-1, *mask.shape)
