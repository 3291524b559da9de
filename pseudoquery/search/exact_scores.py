"""The score of a document to the last bit, whatever stands beside it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation, Score
from pseudoquery.method.scores import attention
from pseudoquery.storage.vector_view import VectorView

Positions = NDArray[np.int64]
"""Documents by their positions in a view."""


def exact_scores(
    view: VectorView,
    query: NDArray[np.float32],
    documents: NDArray[np.int64],
    settings: Representation,
) -> NDArray[np.float64]:
    """Score documents by all of their vectors (Eq. 4-6, or MaxSim).

    A document is padded to the next power of two, so that the order of its sums, and its score to
    the last bit, depends on no other document, and a very long one does not widen all.
    """
    widths = 2 ** np.ceil(np.log2(np.maximum(vector_counts(view, documents), 1))).astype(np.int64)
    scores = np.empty(len(documents))
    for width in set(widths.tolist()):
        alike = widths == width
        dots = dots_of(view, query, documents[alike], settings, width)
        scores[alike] = score_of(np.ascontiguousarray(dots), settings.score)
    return scores


def score_of(dots: NDArray[np.float64], score: Score) -> NDArray[np.float64]:
    """Score as `scores.document_score` does. (documents, query vectors, k) -> (documents,).

    By numpy: torch shares out even so little work and waits for its threads, for milliseconds where
    others are busy.
    """
    per_vector: NDArray[np.float64] = dots.max(axis=-1)
    if score == "softmax":
        missing = np.isneginf(dots)
        with np.errstate(invalid="ignore"):  # where a document has no vectors
            powers = np.exp(dots - per_vector[..., None])
            weights = powers / powers.sum(axis=-1, keepdims=True)
        totals = (weights * np.where(missing, 0.0, dots)).sum(axis=-1)
        per_vector = np.where(missing.all(axis=-1), -np.inf, totals)
    scores: NDArray[np.float64] = per_vector.sum(axis=-1)
    return scores


def dots_of(
    view: VectorView,
    query: NDArray[np.float32],
    documents: NDArray[np.int64],
    settings: Representation,
    width: int,
) -> NDArray[np.float64]:
    """Return the scaled dot products (documents, query vectors, width), padded with -inf."""
    counts = vector_counts(view, documents)
    vectors = view.vectors_of(documents).astype(np.float64)
    # Not a matrix product: BLAS rounds a row differently depending on where it stands.
    products = np.einsum("vd,qd->vq", vectors, query.astype(np.float64), optimize=False)
    dots = np.full((len(documents), width, len(query)), -np.inf)
    dots[np.arange(width) < counts[:, None]] = settings.scale * products
    return dots.transpose(0, 2, 1)


def vector_counts(view: VectorView, documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Say how many vectors each of these documents has."""
    return view.offsets[documents + 1] - view.offsets[documents]


def pseudo_query_weights(
    view: VectorView,
    query: NDArray[np.float32],
    documents: NDArray[np.int64],
    settings: Representation,
) -> list[list[float]]:
    """Say how much each vector of each document weighs for this query."""
    weights: list[list[float]] = []
    for document, count in zip(documents, vector_counts(view, documents).tolist(), strict=True):
        dots = dots_of(view, query, np.array([document]), settings, max(count, 1))
        weights.append(attention(torch.from_numpy(dots), settings.score)[0, :count].tolist())
    return weights
