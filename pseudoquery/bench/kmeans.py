"""How long clustering takes: token embeddings in, pseudo queries out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pseudoquery.bench.machine import capture_job, floor, time_jobs
from pseudoquery.bench.report import Check, Report, Timing
from pseudoquery.method.kmeans import Clusters, kmeans
from pseudoquery.method.presets import preset

ENCODERS: dict[str, dict[str, Any]] = {
    "BERT-base": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072},
    "MiniLM-L6": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
}
ALLOWED = {"BERT-base": 0.01, "MiniLM-L6": 0.05}
"""How much of an encoder's time K-means may take on a GPU."""
HARD = "K-means, tokens without clusters"
BY_POSITION = "K-means by place, tokens without clusters"
LOCALITY = preset("recommended").locality
"""How much a token's position counts there: as much as by default."""
REPLAYED = ", without the host's part"


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

    An iteration is labels for all tokens and then new means; there is at least one. The floor is
    one reading of all tokens, or the operations of one iteration: comparing each token with each
    mean, and adding it to one. "By place" is with the default locality. On a GPU the tokens are
    in bfloat16, and encoders with weights drawn at random, of the same batch, are timed beside.
    """
    kind = "float32" if device == "cpu" else "bfloat16"
    points = synthetic_tokens(documents, tokens, dimension, k).to(device, getattr(torch, kind))
    # The type says that every token counts, so that a GPU need not multiply by weights.
    weights = torch.ones(points.shape[:2], dtype=torch.bool, device=device)
    jobs: dict[str, Callable[[], Any]] = {
        f"K-means, {iterations} iterations at most": lambda: cluster_tokens(
            points, weights, k, iterations
        ),
        "K-means, one iteration": lambda: cluster_tokens(points, weights, k, 1),
    }
    hard = hard_tokens(documents, tokens, dimension).to(points)
    jobs[HARD] = lambda: cluster_tokens(hard, weights, k, iterations)
    jobs[BY_POSITION] = lambda: cluster_tokens(hard, weights, k, iterations, LOCALITY)
    if device != "cpu":
        jobs |= {f"{name}{REPLAYED}": capture_job(job) for name, job in jobs.items()}
    with torch.inference_mode():
        seconds_of = time_jobs(jobs, repeats, device)
    least = floor(points.numel() * points.element_size(), 4 * points.numel() * k, kind, device)
    rows = [
        Timing(name, seconds, least, f"{1e6 * seconds / documents:,.1f} µs a document")
        for name, seconds in seconds_of.items()
    ]
    checks = []
    for name, size in ENCODERS.items() if device != "cpu" else ():
        forward = time_jobs({name: encoder_job(name, documents, tokens, device)}, repeats, device)[
            name
        ]
        work = documents * tokens * operations(tokens, **size)
        rows.append(Timing(f"{name}, forward", forward, floor(0, work, kind, device)))
        for title, job in (("K-means", HARD), ("K-means by place", BY_POSITION)):
            share = seconds_of[f"{job}{REPLAYED}"] / forward
            checks.append(Check(f"{title} / {name}'s forward", share, ALLOWED[name]))
    data = {
        "documents": documents,
        "tokens": tokens,
        "dimension": dimension,
        "k": k,
        "iterations": iterations,
        "locality": LOCALITY,
        "device": device,
        "type": kind,
        "repeats": repeats,
    }
    return Report("kmeans", data, rows, checks)


def cluster_tokens(
    points: Tensor, weights: Tensor, k: int, iterations: int, locality: float = 0.0
) -> Clusters:
    """Cluster in so many iterations at most, as other libraries count them."""
    # `kmeans` counts rounds of means and labels, between the first labels and the last means: one
    # fewer than scikit-learn and Faiss for the same passes over the tokens.
    return kmeans(points, weights, k, iterations=iterations - 1, locality=locality)


def encoder_job(name: str, documents: int, tokens: int, device: str) -> Callable[[], Any]:
    """Prepare the forward pass of an encoder of this shape, with random weights."""
    from transformers import BertConfig, BertModel

    settings = BertConfig(num_attention_heads=12, **ENCODERS[name])
    torch.manual_seed(0)
    model: Any = BertModel(settings, add_pooling_layer=False)
    model = model.eval().to(device)
    model = model if device == "cpu" else model.bfloat16()
    ids = torch.randint(1000, settings.vocab_size, (documents, tokens), device=device)
    mask = torch.ones_like(ids)

    def forward() -> Any:
        with torch.inference_mode():
            return model(input_ids=ids, attention_mask=mask)

    return forward


def operations(
    tokens: int, hidden_size: int, num_hidden_layers: int, intermediate_size: int
) -> int:
    """Count an encoder's operations for a token: projections, attention and the wide layer."""
    multiplied = 4 * hidden_size**2 + 2 * hidden_size * intermediate_size + 2 * tokens * hidden_size
    return 2 * num_hidden_layers * multiplied


def synthetic_tokens(documents: int, tokens: int, dimension: int, topics: int) -> Tensor:
    """Draw token embeddings around a few topics a document: (documents, tokens, dimension)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(documents, topics, dimension, generator=generator)
    topic = torch.randint(topics, (documents, tokens, 1), generator=generator)
    nearest = centres.gather(1, topic.expand(-1, -1, dimension))
    return nearest + torch.randn(documents, tokens, dimension, generator=generator)


def hard_tokens(documents: int, tokens: int, dimension: int) -> Tensor:
    """Draw token embeddings near a plane: without clusters, most go on for ten iterations."""
    generator = torch.Generator().manual_seed(0)
    coordinates = torch.randn(documents, tokens, 2, generator=generator)
    plane = torch.randn(documents, 2, dimension, generator=generator)
    return coordinates @ plane + 0.05 * torch.randn(
        documents, tokens, dimension, generator=generator
    )
