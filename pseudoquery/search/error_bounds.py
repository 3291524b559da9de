"""How far the estimates of a first step can be from the exact scores."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import sensitivity
from pseudoquery.storage.int8_codes import round_queries
from pseudoquery.storage.vector_view import VectorView

EPSILON = float(np.finfo(np.float32).eps)
Errors = TypeVar("Errors", float, NDArray[np.float32])
"""One error for all documents, or one for each."""


def rounding_error(view: VectorView, query: NDArray[np.float32], settings: Representation) -> float:
    """Bound the error of a scaled single-precision dot product with any vector of the view.

    A sum of d products, added in any order, is off by at most d units in the last place of the
    product of the lengths; twice that, plus the tiniest number, leaves room for the rest.
    """
    length = float(np.linalg.norm(query.astype(np.float64), axis=1).max(initial=0.0))
    tiny = float(np.finfo(np.float32).tiny) * query.shape[1]
    bound = 2 * (query.shape[1] + 2) * EPSILON * length * view.norm + tiny
    return float(settings.scale * bound)


def dots_error(
    view: VectorView, query: NDArray[np.float32], errors: Errors, settings: Representation
) -> Errors:
    """Bound how far the dots of a query's vectors, summed, can be from what was compared.

    `errors` are distances between vectors and what the first step has in their place.
    """
    return settings.scale * _summed_lengths(query) * errors + len(query) * rounding_error(
        view, query, settings
    )


def int8_dots_error(
    view: VectorView, query: NDArray[np.float32], errors: Errors, settings: Representation
) -> Errors:
    """Bound the same where a query is rounded to 16 bits, and scores are in single precision.

    Let D be the largest size that a dot can have. In units of EPSILON * D, rounding a dot, its
    scales and its distance from the largest dot moves it by less than 4. The exponentials are off
    by less than 2 units of their own, so their weighted mean, which is within 2 D of every dot,
    moves by less than 4. Its sums have up to `widest` terms of one sign; they, the division and the
    last addition move it by less than 2 * `widest` + 5, and the sum over the query's vectors by
    less than their number. What underflows is less than the tiniest number.
    """
    lost = float(round_queries(query).lost.sum())
    units = (2 * view.widest + len(query) + 24) * EPSILON
    tiny = len(query) * float(np.finfo(np.float32).tiny)
    more = settings.scale * (lost + units * _summed_lengths(query) + tiny) * (view.norm + errors)
    return dots_error(view, query, errors, settings) + more


def gpu_score_error(
    view: VectorView, query: NDArray[np.float32], widest: int, settings: Representation
) -> float:
    """Bound how far a GPU's estimate of a score can be off, if no document has more vectors."""
    length = float(np.linalg.norm(query.astype(np.float64)))
    # A query counts with 22 bits of each number, or of the largest; or to a tiny step.
    largest = float(np.abs(query).max(initial=0.0))
    units = 2.0**-21 + (2 * widest + 16) * EPSILON
    lost = units * length + query.shape[1] * (2.0**-22 * largest + 2.0**-36)
    dot_error = rounding_error(view, query, settings) + settings.scale * lost * view.norm
    return float(score_error_per_dot(widest, settings) * dot_error)


def score_error_per_dot(widest: int, settings: Representation) -> float:
    """Return how far a score can move when every dot of a document moves by at most 1."""
    return sensitivity(max(widest, 1) if settings.score == "softmax" else 1)


def _summed_lengths(query: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(query.astype(np.float64), axis=1).sum())
