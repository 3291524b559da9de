"""K-means on a GPU: one Triton kernel clusters each document from its seeds to its fixed point.

One program has one document. It keeps the k sums in registers, so that every token is read once an
iteration, for its label and its cluster's sum alike, and stops when no label is new. The padding
behind a document's last token is never read, the host never waits, and nothing is added atomically:
the same input gives the same bits. `kmeans.py` is the reference, and takes over where k
times the dimension is too large for this, and in single precision, for which tensor cores are slow.

With `locality` a token's position is one more coordinate, which lies beside the tokens: these are
not copied. How far they scatter, which scales the positions, takes one more reading of them before.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from pseudoquery.method.gpu import shared_memory
from pseudoquery.method.kmeans_kernel import STRIP, _cluster, _variance, _write_positions

REGISTERS = 1 << 15
"""The most columns * dimension whose sums one program can hold in registers."""
WIDEST = 1024
"""The largest dimension; above it, the kernel has not run on a GPU."""
MOST = 64
"""The most clusters, likewise."""


class Plan(NamedTuple):
    """How one program goes through a document; a matter of speed alone."""

    tokens: int
    """Tokens compared at once."""
    chunk: int
    """Dimensions multiplied at once."""
    warps: int
    stages: int


def fits(tokens: Tensor, k: int) -> bool:
    """Say whether the kernel can cluster such tokens into k clusters on their device."""
    if tokens.dtype not in (torch.float16, torch.bfloat16):
        return False
    if tokens.shape[-1] > WIDEST or k > MOST:
        return False
    columns, chosen = _columns(k), plan(tokens, k)
    padded = -(-tokens.shape[-1] // chosen.chunk) * chosen.chunk
    # Two blocks of tokens and the centroids lie in shared memory, for a while also a chunk's sums.
    needed = (2 * chosen.tokens + columns) * padded * 2 + chosen.chunk * columns * 4 + (16 << 10)
    return columns * padded <= REGISTERS and needed <= shared_memory(tokens.device)


def plan(tokens: Tensor, k: int) -> Plan:
    """Choose what was fastest on an H200 for k = 8 and 16 and dimensions 384 and 768."""
    dimension, columns = tokens.shape[-1], _columns(k)
    # Larger chunks are fewer instructions, and cost registers, of which many clusters need most.
    few = columns <= 32
    chunk = 128 if few and dimension % 128 == 0 else 64
    if columns * dimension > 12 << 10:
        return Plan(32, chunk, 8, 3)
    # Little shared memory: two programs a multiprocessor.
    stages = 3 if columns * dimension <= 6 << 10 else 2
    return Plan(64 if few and dimension <= 384 else 32, chunk, 4, stages)


def cluster(
    tokens: Tensor,
    weights: Tensor,
    k: int,
    ranks: Tensor | None = None,
    iterations: int = 20,
    locality: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Cluster tokens (documents, tokens, dim): centroids, counts and assignments as in `Clusters`.

    Weights (documents, tokens) are floats, or faster bools; a zero is padding. Without ranks
    (documents, k), "the r-th token whose weight is above zero", seeds are at equal intervals.
    """
    documents, width, dimension = tokens.shape
    device, columns = tokens.device, _columns(k)
    centroids = torch.empty(documents, k, dimension, device=device)
    counts = torch.empty(documents, k, device=device)
    assignments = torch.empty(documents, width, dtype=torch.int64, device=device)
    if not documents or not width:
        return centroids.zero_().to(tokens.dtype), counts.zero_(), assignments
    # Each pass reads one of these and writes the other: several threads read a label, one writes.
    labels = torch.empty(2, documents, width, dtype=torch.int32, device=device)
    chosen = plan(tokens, k)
    tokens = tokens.contiguous()
    weights = (weights if weights.dtype == torch.bool else weights.float()).contiguous()
    # Triton wants a pointer where none is read.
    positions = find_positions(tokens, weights, k, locality) if locality else counts
    _cluster[(documents,)](
        tokens,
        weights,
        counts if ranks is None else ranks.to(torch.int64).contiguous(),
        positions,
        centroids,
        counts,
        assignments,
        labels,
        documents * width,
        width,
        iterations,
        k,
        DIM=dimension,
        COLUMNS=columns,
        CHUNK=chosen.chunk,
        CHUNKS=triton.cdiv(dimension, chosen.chunk),
        TOKENS=chosen.tokens,
        WEIGHTED=weights.dtype != torch.bool,
        GIVEN=ranks is not None,
        POSITIONED=bool(locality),
        num_warps=chosen.warps,
        num_stages=chosen.stages,
    )
    return centroids.to(tokens.dtype), counts, assignments


def find_positions(tokens: Tensor, weights: Tensor, k: int, locality: float) -> Tensor:
    """Find the coordinate that `kmeans` gives each token for its position: (documents, tokens).

    The padding behind a document has none.
    """
    documents, width, dimension = tokens.shape
    strips = triton.cdiv(dimension, STRIP.value)
    variances = torch.empty(documents, strips, device=tokens.device)
    # In the tokens' precision, as in the reference.
    positions = tokens.new_empty(documents, width)
    _variance[(documents * strips,)](
        tokens, weights, variances, width, DIM=dimension, STRIPS=strips, num_warps=2
    )
    largest = torch.finfo(tokens.dtype).max
    # An integer would have a kernel of its own, hence float().
    _write_positions[(documents,)](
        positions, weights, variances, float(locality), width, k, STRIPS=strips, LARGEST=largest
    )
    return positions


def _columns(k: int) -> int:
    """Count two columns for each cluster, for the halves of its centroid; a power of two."""
    # A tensor core multiplies by no fewer than 16 columns anyway: for k = 8 the halves are free.
    return 2 * max(8, int(triton.next_power_of_2(k)))
