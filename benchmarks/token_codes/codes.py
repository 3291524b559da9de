"""Ways to keep a token in few bytes, and how a question's token is compared with what is kept.

A code decodes to numbers whose products with the question's numbers approximate the products of
the embeddings themselves. What a code needs to know of tokens in general is learnt from a sample
of other collections' tokens; nothing of it is kept with a document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Map = Callable[[NDArray[Any]], NDArray[Any]]
"""(tokens, dim) -> (tokens, another dim)"""


@dataclass(frozen=True, slots=True)
class Code:
    """A form in which documents keep their tokens."""

    name: str
    bytes: float
    """for each token"""
    document: Map
    """from a document's embeddings to what its code says"""
    question: Map
    """from a question's embeddings to what is multiplied with that"""
    step: float | None = None
    """for a code of signs, 1 or -1 in 8 bits: what they stand for"""


def normalise(tokens: Floats) -> Floats:
    """Scale each token to length 1; one without direction stays zero."""
    tokens = tokens.astype(np.float32, copy=False)
    lengths = np.linalg.norm(tokens, axis=-1, keepdims=True)
    unit: Floats = tokens / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def signs(tokens: NDArray[Any]) -> NDArray[np.int8]:
    """1 or -1 for each number; in half precision its first bit tells, which is faster to read."""
    negative = tokens.view(np.int16) < 0 if tokens.dtype == np.float16 else tokens < 0
    return np.int8(1) - np.int8(2) * negative.view(np.int8)


def float16(dim: int) -> Code:
    return Code("float16", 2 * dim, normalise, normalise)


def float16_with_lengths(dim: int) -> Code:
    return Code("float16, lengths kept", 2 * dim, lambda tokens: tokens, normalise)


def int8(dim: int) -> Code:
    def document(tokens: Floats) -> Floats:
        tokens = tokens.astype(np.float32)
        largest = np.maximum(np.abs(tokens).max(axis=-1, keepdims=True), 1e-30)
        return normalise(np.rint(tokens * (127 / largest)))

    return Code("int8", dim + 2, document, normalise)


def plain_signs(dim: int) -> Code:
    return Code("signs", dim / 8, signs, normalise, dim**-0.5)


def centred(code: Code, mean: Floats) -> Code:
    """Take the same code of what differs from the mean token."""
    return replace(
        code, name=f"{code.name}, centred", document=lambda tokens: code.document(tokens - mean)
    )


def projected(code: Code, projection: Floats, name: str) -> Code:
    """Take the same code after a projection (dim, fewer), of both sides."""
    return Code(
        name,
        code.bytes * projection.shape[1] / projection.shape[0],
        lambda tokens: code.document(tokens.astype(np.float32) @ projection),
        lambda tokens: normalise(tokens) @ projection,
        code.step,
    )


def with_magnitudes(code: Code, sample: Floats, power: float = 1.0) -> Code:
    """Expect of each number, given its sign, what it is on average: the question is scaled.

    The two expectations are not symmetric, but half their sum is the same for all documents. A
    negative power does the opposite: numbers that vary little count as much as others.
    """
    decoded, targets = code.document(sample), code.question(sample)
    positive = decoded > 0
    above = np.where(positive, targets, 0).sum(0) / np.maximum(positive.sum(0), 1)
    below = np.where(positive, 0, targets).sum(0) / np.maximum((~positive).sum(0), 1)
    scale = (((above - below) / 2) ** power).astype(np.float32)
    return replace(
        code,
        name=f"{code.name}, magnitudes" + (f" to the {power}" if power != 1 else ""),
        question=lambda tokens: code.question(tokens) * scale,
    )


def with_decoder(code: Code, sample: Floats, ridge: float = 1e-3) -> Code:
    """Expect of a token, given its code, what a linear map learnt from a sample says.

    The map is applied to the question, so neither the index nor the comparison grows.
    """
    decoded = code.document(sample).astype(np.float64) * (code.step or 1)
    centre = decoded.mean(0)
    unit = normalise(sample).astype(np.float64)
    inputs, targets = decoded - centre, unit - unit.mean(0)
    gram = inputs.T @ inputs / len(sample)
    gram += ridge * np.trace(gram) / len(gram) * np.eye(len(gram))
    decoder = np.linalg.solve(gram, inputs.T @ targets / len(sample)).astype(np.float32)
    return replace(
        code,
        name=f"{code.name}, decoder",
        question=lambda tokens: normalise(tokens) @ decoder.T,
    )


def levels(sample: Floats, count: int) -> tuple[Floats, Floats]:
    """Find the best few levels of each number: thresholds (count - 1, dim), values (count, dim)."""
    thresholds = np.quantile(sample, np.arange(1, count) / count, axis=0).astype(np.float32)
    for _ in range(20):
        chosen = (sample[None] > thresholds[:, None]).sum(0)
        values = np.stack(
            [
                np.where(chosen == level, sample, 0).sum(0)
                / np.maximum((chosen == level).sum(0), 1)
                for level in range(count)
            ]
        )
        thresholds = (values[1:] + values[:-1]) / 2
    return thresholds.astype(np.float32), values.astype(np.float32)


def few_levels(sample: Floats, bits: int) -> Code:
    """Keep a few bits of each number."""
    dim = sample.shape[1]
    return in_levels(sample, np.eye(dim, dtype=np.float32), bits, f"{bits} bits")


def in_levels(sample: Floats, projection: Floats, bits: int, name: str) -> Code:
    """Keep a few bits of each projected number, with levels learnt from a sample."""

    def project(tokens: Floats) -> Floats:
        return normalise(tokens) @ projection

    thresholds, values = levels(project(sample), 2**bits)

    def document(tokens: Floats) -> Floats:
        chosen = (project(tokens)[None] > thresholds[:, None]).sum(0)
        return np.take_along_axis(values, chosen, axis=0)

    return Code(name, projection.shape[1] * bits / 8, document, project)


def random_rotation(dim: int, seed: int = 0) -> Floats:
    square = np.random.default_rng(seed).standard_normal((dim, dim))
    return np.linalg.qr(square)[0].astype(np.float32)


def principal_axes(sample: Floats, count: int, *, centre: bool = False) -> Floats:
    """(dim, count): the directions in which tokens differ most."""
    unit = normalise(sample).astype(np.float64)
    if centre:
        unit = unit - unit.mean(0)
    _, vectors = np.linalg.eigh(unit.T @ unit)
    return vectors[:, ::-1][:, :count].astype(np.float32)


def balanced_rotation(sample: Floats, iterations: int = 30, seed: int = 0) -> Floats:
    """Find the rotation after which numbers are nearest to signs, by Gong and Lazebnik's ITQ."""
    rotation = random_rotation(sample.shape[1], seed)
    for _ in range(iterations):
        left, _, right = np.linalg.svd(signs(sample @ rotation).T.astype(np.float32) @ sample)
        rotation = (left @ right).T.astype(np.float32)
    return rotation
