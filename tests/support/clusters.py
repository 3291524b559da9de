"""K-means by plain loops, and documents to cluster."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple, cast

import numpy as np
import torch
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from pseudoquery.method.kmeans import (
    Clusters,
    kmeans,
)
from pseudoquery.method.representation import SEEDINGS, Seeding

Points = NDArray[np.float64]


ENOUGH = 200


seedings = st.sampled_from(SEEDINGS).map(lambda name: cast(Seeding, name))


seeds = st.integers(0, 2**32 - 1)


localities = st.sampled_from([0.0, 0.25, 1.0, 3.0])


class Reference(NamedTuple):
    centroids: Points
    counts: NDArray[np.float64]
    assignments: NDArray[np.int64]


def lloyd(
    points: Points, weights: NDArray[np.float64], starts: list[int], iterations: int
) -> Reference:
    """Cluster one document, in plain loops: equal seeds count once, empty clusters die."""
    k = len(starts)
    centroids: dict[int, Points] = {}
    for cluster, start in enumerate(starts):
        if not any(np.array_equal(points[start], other) for other in centroids.values()):
            centroids[cluster] = points[start]
    labels = nearest(points, centroids)
    for _ in range(iterations):
        centroids = means(points, weights, labels, k)
        labels = nearest(points, centroids)
    centroids = means(points, weights, labels, k)
    rows = np.zeros((k, points.shape[1]))
    counts = np.zeros(k)
    for cluster, centroid in centroids.items():
        rows[cluster] = centroid
        counts[cluster] = weights[labels == cluster].sum()
    return Reference(rows, counts, labels)


def nearest(points: Points, centroids: dict[int, Points]) -> NDArray[np.int64]:
    labels = []
    for point in points:
        distances = {c: float(((point - row) ** 2).sum()) for c, row in sorted(centroids.items())}
        labels.append(min(distances, key=lambda c: distances[c]))
    return np.array(labels, dtype=np.int64)


def means(
    points: Points, weights: NDArray[np.float64], labels: NDArray[np.int64], k: int
) -> dict[int, Points]:
    found = {}
    for cluster in range(k):
        members = labels == cluster
        if members.any():
            found[cluster] = (weights[members, None] * points[members]).sum(0) / weights[
                members
            ].sum()
    return found


def with_positions(points: Points, weights: NDArray[np.float64], k: int, locality: float) -> Points:
    """Give each point its position as one more coordinate, by definition.

    The middle of a token's stretch of the text, in k-ths from the middle of the text; a k-th is as
    far as `locality` standard deviations. These are rounded to bfloat16, and must not be near to
    where the rounding jumps.
    """
    total = sum(weights)
    middle = sum(weight * point for weight, point in zip(weights, points, strict=True)) / total
    variance = 0.0
    for weight, point in zip(weights, points, strict=True):
        variance += weight * ((point - middle) ** 2).sum() / total
    near = torch.tensor([0.99999, 1.0, 1.00001], dtype=torch.float64) * variance**0.5
    deviation, *others = set(near.to(torch.bfloat16).tolist())
    assume(not others)
    rows, before = [], 0.0
    for weight, point in zip(weights, points, strict=True):
        position = k * ((before + weight / 2) / total - 0.5)
        rows.append([*point, locality * deviation * position])
        before += weight
    return np.array(rows)


def stretches(labels: Tensor) -> list[int]:
    """How many tokens stand together in one cluster, from the first to the last."""
    return [len(list(same)) for _, same in groupby(labels.flatten().tolist())]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).float()


def integers(seed: int, *shape: int, highest: int = 4) -> Tensor:
    numbers = np.random.default_rng(seed).integers(-highest, highest + 1, size=shape)
    return torch.from_numpy(numbers).float()


def pad(documents: list[Tensor], extra: int = 0, filler: float = 0.0) -> tuple[Tensor, Tensor]:
    """Put documents into one batch, with any number in the padding."""
    width = max(len(document) for document in documents) + extra
    tokens = torch.full((len(documents), width, documents[0].shape[1]), filler)
    weights = torch.zeros(len(documents), width)
    for row, document in enumerate(documents):
        tokens[row, : len(document)] = document
        weights[row, : len(document)] = 1
    return tokens, weights


def cluster_one(document: Tensor, k: int) -> Clusters:
    return kmeans(document[None], torch.ones(1, len(document)), k, iterations=ENOUGH)


def inertia(document: Tensor, clusters: Clusters) -> float:
    labels = clusters.assignments[0]
    return float((document - clusters.centroids[0][labels]).double().square().sum())


def alive(clusters: Clusters, row: int = 0) -> Tensor:
    return clusters.centroids[row][clusters.counts[row] > 0]


def distinct_rows(rows: Tensor) -> int:
    return len({tuple(row) for row in rows.tolist()})
