"""Late interaction's MaxSim of all queries with all documents, for training.

The dot products of all tokens with all tokens are more than a GPU holds. But of a query's token and
a document only the largest counts, and only it has a gradient: so the largest are looked for first,
a part at a time, and then made again, with a gradient, as dots of pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

DOTS_AT_ONCE = 1 << 30


def maxsim_matrix(
    queries: Tensor, documents: Tensor, queries_mask: Tensor, documents_mask: Tensor
) -> Tensor:
    """Score every query (Q, n, dim) against every document (N, k, dim) under masks -> (Q, N).

    The same as `scores.similarity_matrix` with the score "max"; of equal dots, one wins. A document
    without vectors scores minus infinity.
    """
    owner, place = queries_mask.nonzero(as_tuple=True)
    tokens = queries[owner, place]
    winners = _winners(tokens.detach(), documents.detach(), documents_mask)
    best = torch.einsum("td,tbd->tb", tokens, documents.flatten(0, 1)[winners])
    scores = best.new_zeros(len(queries), len(documents)).index_add(0, owner, best)
    return scores.masked_fill(~documents_mask.any(dim=1), -torch.inf)


def _winners(tokens: Tensor, documents: Tensor, mask: Tensor) -> Tensor:
    """Find each document's vector with the largest dot, among all vectors: (tokens, documents)."""
    count, widest, _ = documents.shape
    flat = documents.flatten(0, 1)
    at_once = max(1, DOTS_AT_ONCE // max(mask.numel(), 1))
    found = [
        (part @ flat.T).view(-1, count, widest).masked_fill_(~mask, -torch.inf).argmax(dim=2)
        for part in torch.split(tokens, at_once)
    ]
    return torch.cat(found) + widest * torch.arange(count, device=mask.device)
