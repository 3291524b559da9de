"""Scores as pure functions of the dot products of a query vector and a document's vectors.

`dots` has the document's vectors along its last dimension; where a document has fewer vectors than
the widest one, the missing dots are minus infinity, so that they can neither win nor weigh. Nothing
else of the query or the document is needed: the paper's e_d never has to be built.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from scipy.optimize import brentq
from scipy.special import lambertw
from torch import Tensor

from pseudoquery.method.representation import Score


def weights(dots: Tensor) -> Tensor:
    """Eq. 4: a_j = softmax(s)_j; all zero for a document without vectors. (..., k) -> (..., k)."""
    return torch.softmax(dots, dim=-1).nan_to_num(0.0)


def softmax_score(dots: Tensor) -> Tensor:
    """Eq. 4-6: y = sum of a_j s_j; minus infinity without vectors. (..., k) -> (...)."""
    missing = torch.isneginf(dots)
    # A missing vector's weight is zero, but zero times minus infinity would be NaN.
    total = (weights(dots) * dots.masked_fill(missing, 0.0)).sum(dim=-1)
    return total.masked_fill(missing.all(dim=-1), -torch.inf)


def max_score(dots: Tensor) -> Tensor:
    """Eq. 12: the largest dot product stands for the document. (..., k) -> (...)."""
    return dots.amax(dim=-1)


def document_score(dots: Tensor, score: Score) -> Tensor:
    """Sum the score over the query's vectors. (..., query vectors, k) -> (...).

    One query vector gives the paper's score; many, with "max", give late interaction's MaxSim.
    """
    per_vector = softmax_score(dots) if score == "softmax" else max_score(dots)
    return per_vector.sum(dim=-1)


def attention(dots: Tensor, score: Score) -> Tensor:
    """Each document vector's weight, averaged over the query's vectors. (..., n, k) -> (..., k).

    With "softmax" these are the a_j of Eq. 4, with "max" those of Eq. 12.
    """
    if score == "softmax":
        return weights(dots).mean(dim=-2)
    winners = torch.nn.functional.one_hot(dots.argmax(dim=-1), dots.shape[-1])
    return winners.to(dots.dtype).mean(dim=-2)


def window(k: int) -> float:
    """How far y can fall below the largest dot m: at most W((k-1)/e), and the bound is tight."""
    return float(lambertw((k - 1) / math.e).real) if k > 1 else 0.0


@cache
def sensitivity(k: int) -> float:
    """How far y can move when every dot moves by at most 1; tight, and small: 1.67 for k = 8.

    It is the largest sum of |dy/ds_j| = |a_j (1 + s_j - y)|. These sum to 1, so all depends on how
    much of it is negative. With P the weight of the vectors whose part is negative, that is at most
    P ((1-P) (ln(k-1) + ln((1-P)/P)) - 1), reached by one vector against k - 1 equal ones.
    """
    if k == 1:
        return 1.0

    def odds(part: float) -> float:
        return math.log((k - 1) * (1 - part) / part)

    # Where the derivative vanishes; it falls on the way from 0 to 1/2, and the maximum lies there.
    part = brentq(lambda share: (1 - 2 * share) * odds(share) - 2, 1e-12, 0.5)
    return 1 + 2 * float(part * ((1 - part) * odds(part) - 1))


def contributions(dots: Tensor) -> Tensor:
    """r(c_j) of the paper's Section 4.6, dy/ds_j = a_j (1 + s_j - y). (..., k) -> (..., k)."""
    finite = dots.masked_fill(torch.isneginf(dots), 0.0)
    return weights(dots) * (1 + finite - softmax_score(dots).unsqueeze(-1)).nan_to_num(
        0.0, 0.0, 0.0
    )


def similarity_matrix(
    queries: Tensor,
    documents: Tensor,
    queries_mask: Tensor | None = None,
    documents_mask: Tensor | None = None,
    *,
    score: Score = "softmax",
    scale: float = 1.0,
) -> Tensor:
    """Score every query (Q, n, dim) against every document (N, k, dim) under masks -> (Q, N)."""
    dots = scale * torch.einsum("qnd,bkd->qbnk", queries, documents)
    if documents_mask is not None:
        dots = dots.masked_fill(~documents_mask.bool()[None, :, None, :], -torch.inf)
    per_vector = softmax_score(dots) if score == "softmax" else max_score(dots)
    if queries_mask is not None:
        per_vector = per_vector.masked_fill(~queries_mask.bool()[:, None, :], 0.0)
    return per_vector.sum(dim=-1)
