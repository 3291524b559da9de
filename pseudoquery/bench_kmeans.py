"""How long clustering takes: token embeddings in, pseudo queries out."""

from __future__ import annotations

import torch
from torch import Tensor

from pseudoquery.bench import Measured, Report, floor, timed
from pseudoquery.kmeans import kmeans


def bench_kmeans(
    documents: int = 16,
    tokens: int = 512,
    dimension: int = 384,
    k: int = 8,
    iterations: int = 10,
    device: str = "cpu",
    repeats: int = 7,
) -> Report:
    """Cluster a batch of synthetic documents, until they converge or have had all iterations.

    The floor is one reading of all tokens, or the operations of one iteration: comparing each token
    with each mean, and adding it to one.
    """
    points = synthetic_tokens(documents, tokens, dimension, k).to(device)
    weights = torch.ones(points.shape[:2], device=device)
    with torch.inference_mode():
        taken = timed(
            {
                "cluster": lambda: kmeans(points, weights, k, iterations=iterations),
                "one iteration": lambda: kmeans(points, weights, k, iterations=1),
            },
            repeats,
            device,
        )
    least = floor(points.numel() * 4, 4 * points.numel() * k, on=device)
    rows = [
        Measured(
            f"K-means, {iterations} iterations at most",
            taken["cluster"],
            least,
            f"{1e6 * taken['cluster'] / documents:,.1f} µs a document",
        ),
        Measured("K-means, one iteration", taken["one iteration"], least),
    ]
    data = {
        "documents": documents,
        "tokens": tokens,
        "dimension": dimension,
        "k": k,
        "iterations": iterations,
        "device": device,
        "repeats": repeats,
    }
    return Report("kmeans", data, rows)


def synthetic_tokens(documents: int, tokens: int, dimension: int, topics: int) -> Tensor:
    """Draw token embeddings around a few topics a document: (documents, tokens, dimension)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(documents, topics, dimension, generator=generator)
    topic = torch.randint(topics, (documents, tokens, 1), generator=generator)
    own = centres.gather(1, topic.expand(-1, -1, dimension))
    return own + torch.randn(documents, tokens, dimension, generator=generator)
