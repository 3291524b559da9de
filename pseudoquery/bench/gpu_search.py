"""How long exact search takes on a GPU, beside reading the vectors and multiplying with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pseudoquery.bench.machine import floor, time_jobs
from pseudoquery.bench.report import Check, Report, Timing
from pseudoquery.search import gpu_search

BLOCK = 100_000
"""Documents whose vectors are drawn at once."""
SCALE = 20.0


def bench_gpu_search(
    documents: int = 3_200_000,
    k: int = 8,
    dimension: int = 768,
    queries: int = 128,
    top: int = 1000,
    vector_type: str = "float16",
    repeats: int = 9,
) -> Report:
    """Score all documents of a synthetic corpus, one query and many at a time, and keep the best.

    The floor is one reading of all vectors or, for many queries, the arithmetic. One query has to
    come close to the reading, and many to a product of the same vectors and queries by itself.
    """
    corpus = synthetic_corpus(documents, k, dimension, vector_type)
    query_vectors = torch.randn(queries, dimension, device="cuda") / dimension**0.5
    one, many = "one query", f"{queries} queries"
    half = torch.bfloat16 if vector_type == "bfloat16" else torch.float16
    rounded = query_vectors if vector_type == "float32" else query_vectors.to(half)
    jobs = {
        f"{many}, in single precision": search_job(corpus, query_vectors, top),
        f"{many}, rounded": search_job(corpus, rounded, top),
    }
    product = f"{many}, product alone"
    if vector_type != "int8":  # torch has no product of 8-bit vectors with others
        product_buffer = torch.empty(len(corpus.vectors), queries, dtype=half, device="cuda")
        jobs[product] = lambda: torch.mm(corpus.vectors, rounded.T, out=product_buffer)
    # Timed alone, as the reading that it is compared with: after a product it takes a tenth longer.
    seconds_of = time_jobs({one: search_job(corpus, query_vectors[:1], top)}, repeats, "cuda")
    seconds_of |= time_jobs(jobs, repeats, "cuda")
    numbers = corpus.vectors.numel()
    reading = numbers * corpus.vectors.element_size()
    kind = "float16" if vector_type == "int8" else vector_type
    rows = [
        Timing(
            name,
            seconds,
            floor(reading, 0 if name == one else 2 * numbers * queries, kind, "cuda"),
            f"{reading / seconds / 1e12:.2f} TB/s",
        )
        for name, seconds in seconds_of.items()
    ]
    checks = [
        Check("one query / reading the vectors", seconds_of[one] / floor(reading, on="cuda"), 1.1)
    ]
    if product in seconds_of:
        ratio = seconds_of[f"{many}, rounded"] / seconds_of[product]
        checks.append(Check(f"{many} / the product alone", ratio, 1.3))
    data = {
        "documents": documents,
        "k": k,
        "dimension": dimension,
        "type": vector_type,
        "gigabytes": round(reading / 1e9, 1),
        "queries_in_a_batch": queries,
        "top": top,
        "repeats": repeats,
    }
    return Report("search", data, rows, checks)


def search_job(corpus: gpu_search.Documents, queries: Tensor, top: int) -> Callable[[], Any]:
    """Prepare a search."""
    return lambda: gpu_search.search(corpus, queries, top, scale=SCALE)


def synthetic_corpus(count: int, k: int, dimension: int, vector_type: str) -> gpu_search.Documents:
    """Draw vectors of about unit length on the GPU, in blocks."""
    kind = getattr(torch, vector_type)
    vectors = torch.empty(count, k, dimension, dtype=kind, device="cuda")
    torch.manual_seed(0)
    for start in range(0, count, BLOCK):
        block = vectors[start : start + BLOCK]
        if kind == torch.int8:
            block.random_(-127, 128)
        else:
            block.normal_(std=dimension**-0.5)
    scales = None
    if kind == torch.int8:  # numbers drawn from -127 to 127 have a mean square of 73 squared
        scales = torch.full((count, k), 1 / (73 * dimension**0.5), device="cuda")
    return gpu_search.documents(vectors, scales=scales)
