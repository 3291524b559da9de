"""A document's pseudo queries, and a question if there is one, as points on a plane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pseudoquery.method.representation import Representation
from pseudoquery.method.scores import attention
from pseudoquery.records import Document, Span
from pseudoquery.search.explain import EncodedDocument, pseudo_query_spans
from pseudoquery.service.labels import labels


@dataclass(frozen=True, slots=True)
class Point:
    """A point on the plane."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class MappedPseudoQuery:
    """One pseudo query on the map."""

    point: Point
    label: str
    """A few words that set it apart from the others."""
    spans: tuple[Span, ...]
    weight: float | None
    """How much it counts for the question; None without a question."""


@dataclass(frozen=True, slots=True)
class DocumentMap:
    """A document's pseudo queries on a plane. The one with the largest weight comes first."""

    document: Document
    pseudo_queries: tuple[MappedPseudoQuery, ...]
    query: Point | None
    variance: float
    """The share of the vectors' variance that the plane shows."""


def map_document(
    encoded: EncodedDocument, question: NDArray[np.float32] | None, settings: Representation
) -> DocumentMap:
    """Project the vectors of a document and a question (vectors, dim) on a plane."""
    document, document_vectors = encoded.document, encoded.encoded.vectors
    count = len(document_vectors)
    vectors = [document_vectors] if question is None else [document_vectors, _mean(question)]
    coordinates, variance = plane(np.concatenate(vectors))
    points = [Point(*row) for row in coordinates.tolist()]
    spans = pseudo_query_spans(encoded)
    weights: list[float | None] = [None] * count
    if question is not None and count:
        # In double precision and in this order, as `explain` does, so that the two agree.
        dots = settings.scale * torch.from_numpy(question @ document_vectors.T).double()
        weights = attention(dots, settings.score).tolist()
    mapped = [
        MappedPseudoQuery(*fields)
        for fields in zip(points[:count], labels(document.text, spans), spans, weights, strict=True)
    ]
    return DocumentMap(
        document,
        tuple(sorted(mapped, key=lambda pseudo_query: -(pseudo_query.weight or 0.0))),
        points[count] if question is not None else None,
        variance,
    )


def plane(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Project vectors on the plane that shows most of their variance (PCA), and return its share.

    (n, dim) -> (n, 2). The direction of an axis is arbitrary: here, the point that is furthest from
    the middle has a positive coordinate.
    """
    if not len(vectors):
        return np.zeros((0, 2)), 1.0
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64, keepdims=True)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = np.zeros((len(vectors), 2))
    axes = min(2, len(lengths))
    coordinates[:, :axes] = left[:, :axes] * lengths[:axes]
    furthest = coordinates[np.abs(coordinates).argmax(axis=0), (0, 1)]
    total = float((lengths**2).sum())
    shown = float((lengths[:2] ** 2).sum())
    return coordinates * np.where(furthest < 0, -1.0, 1.0), shown / total if total else 1.0


def _mean(query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average a question's vectors, so that it is one point even if each token has a vector."""
    mean: NDArray[np.float32] = query.mean(axis=0, keepdims=True)
    return mean
