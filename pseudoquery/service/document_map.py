"""A document's pseudo queries, and a question if there is one, as points on a plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import document_text, encode_queries, encode_texts
from pseudoquery.encoding.model import representation_of
from pseudoquery.method.scores import attention
from pseudoquery.records import Document, Span
from pseudoquery.search.explain import passages
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
    model: MultiVectorEncoder, document: Document, query: str | None, long: Any = "windows"
) -> DocumentMap:
    """Encode a document and a question, and project their vectors on a plane."""
    encoded = encode_texts(model, [document_text(document)[0]], "document", long)[0]
    count = len(encoded.vectors)
    question = encode_queries(model, [query])[0] if query is not None else None
    vectors = [encoded.vectors] if question is None else [encoded.vectors, _mean(question)]
    coordinates, variance = plane(np.concatenate(vectors))
    points = [Point(*row) for row in coordinates.tolist()]
    spans = passages(encoded, document)
    weights: list[float | None] = [None] * count
    if question is not None and count:
        settings = representation_of(model)
        # In double precision and in this order, as `explain` does, so that the two agree.
        dots = settings.scale * torch.from_numpy(question @ encoded.vectors.T).double()
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
