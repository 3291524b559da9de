"""K-means over every document's token embeddings at once: the pseudo queries are the means.

A batch is one padded tensor and one weight per token; a weight of zero is padding. Every step is a
function of one document's own rows, so a document's result does not depend on its neighbours in the
batch. On a CPU, one document after the other goes to its fixed point, while it is in the cache. On
a GPU all go on together, without waiting for the device, or a kernel of our own does the same, one
pass over the tokens an iteration (`kmeans_gpu`).

The paper's clusters know nothing of a token's position in the text. With `locality` they do: the
position is one more coordinate, so that a cluster is a stretch of the text about one thing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pseudoquery.method.gpu import runs_kernels
from pseudoquery.method.representation import SEEDINGS, Seeding


class Clusters(NamedTuple):
    """The outcome for a batch of documents."""

    centroids: Tensor
    """(documents, k, dim); rows of empty clusters are zero and must be masked by `counts > 0`."""
    counts: Tensor
    """(documents, k): the weight of each cluster's tokens, 0 for an empty cluster."""
    assignments: Tensor
    """(documents, tokens): each token's cluster; -1 for padding."""


def kmeans(
    tokens: Tensor,
    weights: Tensor,
    k: int,
    *,
    seeding: Seeding = "equal-interval",
    iterations: int = 20,
    locality: float = 0.0,
    seed: int = 0,
) -> Clusters:
    """Cluster each document's tokens (documents, tokens, dim), weighted (documents, tokens).

    Assignments are constants for the gradient, which flows through the means. Lloyd's iterations
    stop for a document when its assignments no longer change: it has then reached a fixed point.
    Clusters with equal means are one, so a document of few distinct tokens has fewer than k.
    """
    plain = tokens.detach()
    if runs_kernels(tokens.device):
        from pseudoquery.method import kmeans_gpu

        if kmeans_gpu.fits(tokens, k):
            at_intervals = seeding == "equal-interval"
            ranks = None if at_intervals else seed_ranks(weights > 0, k, seeding, seed)
            clusters = Clusters(*kmeans_gpu.cluster(plain, weights, k, ranks, iterations, locality))
            if not tokens.requires_grad:
                return clusters
            return _average(tokens, weights, clusters.assignments, k)
    points = _with_positions(plain, weights, k, locality) if locality else plain
    points = points.to(torch.float32)
    weights, singles = weights.to(torch.float32), tokens.to(torch.float32)
    with torch.no_grad():
        seeds = seed_positions(weights > 0, k, seeding, seed)
        centroids = points.gather(1, seeds.unsqueeze(-1).expand(-1, -1, points.shape[-1]))
        alive = _first_equal(centroids) == torch.arange(k, device=points.device)
        assignments = _assign(points, centroids, alive)
        # Reading a flag costs nothing on the CPU, but would stall a GPU's queue; there, further
        # iterations of a converged document repeat its fixed point.
        if points.device.type == "cpu":
            for document in zip(points, weights, assignments, strict=True):
                document[2].copy_(_until_fixed(*document, k, iterations))
        else:
            for _ in range(iterations):
                centroids, counts = _means(points, weights, assignments, k)
                assignments = _assign(points, centroids, counts > 0)
        assignments = assignments.masked_fill(weights == 0, -1)
        assignments = _merge_duplicates(singles.detach(), weights, assignments, k)
    clusters = _average(singles, weights, assignments, k)
    return clusters._replace(centroids=clusters.centroids.to(tokens.dtype))


def _with_positions(tokens: Tensor, weights: Tensor, k: int, locality: float) -> Tensor:
    """Give each token one more coordinate, its position in the text.

    Positions are counted in k-ths of the text, and a k-th is as far as `locality` times the
    standard deviation of the document's tokens, so that neither the encoder's scale nor the length
    matters.
    """
    points, weights = tokens.to(torch.float32), weights.to(torch.float32)
    total = weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    shares = weights / total
    distances = torch.linalg.vector_norm(points - shares.unsqueeze(1) @ points, dim=-1)
    variance = (shares * distances.square()).sum(dim=1)
    # Padding changes the order of a sum, and so its last digits: they must not move a token.
    deviation = variance.sqrt().to(torch.bfloat16).to(torch.float32)
    # From the middle, where half precision has most digits to tell neighbours apart.
    positions = k * (relative_positions(weights) - 0.5)
    largest = torch.finfo(tokens.dtype).max
    coordinate = (locality * deviation.unsqueeze(1) * positions).to(tokens.dtype)
    return torch.cat([tokens, coordinate.clamp(-largest, largest).unsqueeze(-1)], dim=-1)


def relative_positions(weights: Tensor) -> Tensor:
    """Say where each token's middle stands in its text, from 0 to 1: (texts, tokens)."""
    total = weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return (weights.cumsum(dim=1) - weights / 2) / total


def _average(tokens: Tensor, weights: Tensor, assignments: Tensor, k: int) -> Clusters:
    """Take the means of assigned tokens, through which the gradient flows."""
    centroids, counts = _means(tokens.to(torch.float32), weights, assignments, k)
    return Clusters(centroids.to(tokens.dtype), counts, assignments)


def _until_fixed(
    points: Tensor, weights: Tensor, labels: Tensor, k: int, iterations: int
) -> Tensor:
    """Repeat Lloyd's iteration for one document (tokens, dim) until its labels stay the same."""
    weighted = points * weights.unsqueeze(-1)
    for _ in range(iterations):
        # Adding each token to its cluster is faster than `_means`, which multiplies it by a share
        # in each; on a GPU it would have no fixed order.
        sums = weighted.new_zeros(k, weighted.shape[-1]).index_add_(0, labels, weighted)
        counts = weights.new_zeros(k).index_add_(0, labels, weights)
        centroids = sums / counts.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)
        before, labels = labels, _assign(points[None], centroids[None], counts > 0)[0]
        if torch.equal(labels, before):
            break
    return labels


def seed_positions(real: Tensor, k: int, seeding: Seeding, seed: int = 0) -> Tensor:
    """Choose k token positions per document, (documents, k), among the real ones in the mask."""
    return positions_of_ranks(real, seed_ranks(real, k, seeding, seed))


def seed_ranks(real: Tensor, k: int, seeding: Seeding, seed: int = 0) -> Tensor:
    """Choose k of each document's real tokens, by their rank among these: (documents, k).

    "equal-interval" cuts the n tokens at i*n/k; "released" is the variant of the authors' code,
    i*(n//k) with position 0 replaced by 1; "random" draws distinct tokens.
    """
    lengths = real.sum(dim=1, keepdim=True)
    steps = torch.arange(k, device=real.device).unsqueeze(0)
    if seeding == "equal-interval":
        return steps * lengths // k
    if seeding == "released":
        return (steps * (lengths // k)).clamp(min=1)
    if seeding == "random":
        return random_ranks(lengths, real.shape[1], k, seed)
    raise ValueError(f"seeding is {seeding!r}; choose one of {', '.join(SEEDINGS)}")


def positions_of_ranks(real: Tensor, ranks: Tensor) -> Tensor:
    """Turn "the r-th real token" into a position; ranks past the end give the last real token."""
    running = real.long().cumsum(dim=1)
    # The r-th real token stands where the running count of real tokens first reaches r + 1.
    positions = torch.searchsorted(running, torch.minimum(ranks + 1, running[:, -1:]))
    return positions.clamp(max=real.shape[1] - 1)


def random_ranks(lengths: Tensor, width: int, k: int, seed: int) -> Tensor:
    """Draw k distinct ranks below each length (documents, 1), ascending; repeats if it is shorter.

    Ranks are ordered by a hash of seed, length and rank and the first k taken: the draw leaves the
    global random state alone, and is the same for a document on any device and in any batch.
    """
    ranks = torch.arange(max(width, k), device=lengths.device).unsqueeze(0)
    order = _hash(ranks + (lengths << 32) + seed * 0x9E3779B1)
    order = order.masked_fill(ranks >= lengths, torch.iinfo(torch.int64).max)
    drawn = order.argsort(dim=1)[:, :k]
    return torch.where(drawn < lengths, drawn, drawn[:, :1]).sort(dim=1).values


def _hash(numbers: Tensor) -> Tensor:
    """Scatter 64-bit integers evenly, by folding the high bits down and multiplying three times."""
    for multiplier in (0x3C79AC492BA7B653, 0x1C69B3F74AC4AE35, 0x27D4EB2F165667C5):
        numbers = (numbers ^ (numbers >> 29)) * multiplier
    return numbers ^ (numbers >> 32)


def _assign(points: Tensor, centroids: Tensor, alive: Tensor) -> Tensor:
    """Give each token its nearest living centroid; of equally near ones, the first."""
    # |x - c|^2 without |x|^2, which is the same for every centroid of a token.
    lengths = centroids.square().sum(dim=-1).masked_fill(~alive, torch.inf).unsqueeze(-1)
    # Clusters by tokens: with few clusters, a CPU multiplies faster this way round.
    return torch.baddbmm(lengths, centroids, points.mT, alpha=-2).min(dim=1).indices


def _means(points: Tensor, weights: Tensor, assignments: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Average each cluster's tokens by their weights; an empty cluster keeps a row of zeros."""
    clusters = torch.arange(k, device=points.device)
    membership = (assignments.unsqueeze(-1) == clusters) * weights.unsqueeze(-1)
    counts = membership.sum(dim=1)
    shares = membership / counts.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1)
    return shares.mT @ points, counts


def _merge_duplicates(points: Tensor, weights: Tensor, assignments: Tensor, k: int) -> Tensor:
    """Move the tokens of a cluster whose mean equals an earlier one's into that earlier cluster."""
    centroids, counts = _means(points.to(torch.float32), weights, assignments, k)
    # An empty cluster's row of zeros must not swallow a cluster whose mean happens to be zero.
    marked = torch.cat([centroids, (counts > 0).unsqueeze(-1)], dim=-1)
    merged = _first_equal(marked).gather(1, assignments.clamp(min=0))
    return merged.masked_fill(assignments < 0, -1)


def _first_equal(vectors: Tensor) -> Tensor:
    """Point each of a document's vectors (documents, k, dim) to the first one equal to it."""
    # The largest difference between two; without a matrix product, which would not be exact.
    same = torch.cdist(vectors, vectors, p=torch.inf) == 0
    return same.to(torch.uint8).argmax(dim=-1)
