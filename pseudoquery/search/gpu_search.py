"""Exact search on a GPU: every document scored in one pass over the vectors, the n best kept.

A document's score and position become one 64-bit key, whose order is "larger score first, then the
smaller position": so the best are the largest keys, and no two keys are equal, whatever the order
in which programs end. A sample of the documents tells a key that some more than n of all reach: one
pass then writes down only those, a few thousand for each query, never all scores. If they turn out
to be fewer than n, or too many, the documents are gone through once more, in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import triton
from torch import Tensor

from pseudoquery.method.gpu import shared_memory
from pseudoquery.method.representation import Score
from pseudoquery.search.gpu_search_kernel import _score

SAMPLE = 251
"""One document in so many sets the bound; a prime, against corpora that repeat a pattern."""
DEVIATIONS = 6
"""The bound is so many standard deviations lower than the sample suggests ..."""
SPARE = 12
"""... and lower by so many of its documents, since for a few best the chances are more uneven."""
STEPS = {torch.float16: 2048.0, torch.bfloat16: 256.0, torch.float32: 1.0, torch.int8: 254.0}
"""A query is a sum of parts in the vectors' type, each so much finer than the one before."""
NOTHING = -(1 << 63)
"""The key of no document."""
WIDEST = 256
"""A document's dots are held by one program, so it can't have any number of vectors."""
DENSE = 1 << 16
"""So many documents can have all of their keys written for each query."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The vectors of all documents, on the GPU or, if they are to be streamed, on the host."""

    vectors: Tensor
    """(total, dim), contiguous; float16, bfloat16, float32 or int8."""
    width: int
    """The most vectors that a document has."""
    offsets: Tensor | None = None
    """(documents + 1,), int64; None if every document has `width` vectors."""
    scales: Tensor | None = None
    """(total,), float32: what each int8 vector is to be multiplied by."""

    @property
    def count(self) -> int:
        """How many documents there are."""
        if self.offsets is None:
            return len(self.vectors) // self.width if self.width else 0
        return len(self.offsets) - 1

    def part(self, start: int, end: int) -> Documents:
        """Take the documents from start to end, without copying their vectors."""
        if self.offsets is None:
            first, last, offsets = start * self.width, end * self.width, None
        else:
            first, last = (int(self.offsets[position]) for position in (start, end))
            offsets = self.offsets[start : end + 1] - first
        scales = None if self.scales is None else self.scales[first:last]
        return replace(self, vectors=self.vectors[first:last], offsets=offsets, scales=scales)


@dataclass(frozen=True, slots=True)
class Tile:
    """How much one program scores at once; a matter of speed alone."""

    vectors: int
    queries: int
    chunk: int
    warps: int
    stages: int

    @classmethod
    def fitting(cls, queries: int, dtype: torch.dtype, parts: int, shared: int) -> Tile:
        """Choose by the number of queries: few are bound by memory, many by the tensor cores.

        What is here was fastest on an H200 or, for less shared memory than its, fits.
        """
        if dtype == torch.float32:
            return cls(64, 16 if queries <= 16 else 64, 32, 4, 3)
        if queries <= 16 and dtype == torch.int8:
            return cls(256, 16, 128, 8, 3)
        if queries <= 16:
            # The more is on its way from memory, the better: 36 KB a stage.
            return cls(256, 16, 64, 8, 6 if shared >= 224 << 10 else 4)
        if queries <= 64 or dtype == torch.int8:
            return cls(128, min(64, int(triton.next_power_of_2(queries))), 64, 4, 4)
        # 128 x 256 sums are half of the registers; a second such product would not fit.
        return cls(256 if parts == 1 else 128, 128, 64, 8, 3)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked, the same of every part of the documents."""

    parts: Tensor
    """(parts, queries, dim), in the type of the vectors."""
    units: Tensor
    """(queries,), float32: what the sum of a query's parts is multiplied by."""
    top: int
    scale: float
    score: Score
    tile: Tile


def documents(
    vectors: Tensor, offsets: Tensor | None = None, scales: Tensor | None = None
) -> Documents:
    """Take vectors (documents, k, dim), or (total, dim) with offsets (documents + 1)."""
    if vectors.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.int8):
        raise TypeError(f"vectors are {vectors.dtype}; give float16, bfloat16, float32 or int8")
    if offsets is None:
        width = vectors.shape[1]
    else:
        offsets = offsets.to(torch.int64)
        counts = offsets.diff()
        width = int(counts.max()) if len(counts) else 0
        if len(counts) and width and bool((counts == width).all()):
            offsets = None  # every offset is a multiple of the width
    flat = vectors.reshape(-1, vectors.shape[-1]).contiguous()
    if scales is not None:
        scales = scales.reshape(-1).float()
        if len(scales) != len(flat):
            raise ValueError(f"{len(scales)} scales for {len(flat)} vectors")
    return Documents(flat, width, offsets, scales)


def search(
    corpus: Documents | Sequence[Documents],
    queries: Tensor,
    top: int,
    *,
    scale: float = 1.0,
    score: Score = "softmax",
    allowed: Tensor | None = None,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the best documents' positions (queries, top) and scores; equal ones by position.

    Queries (queries, dim) are on the GPU. In single precision they count with 22 bits (16 beside
    bfloat16 vectors), at the cost of two products; rounded to the vectors' type, of one. 8-bit
    vectors are multiplied as integers, with three of a query. The scale is above 0. Allowed
    (documents,) is True where a document takes part; where too few do, the positions are -1.
    Several corpora are numbered through. What is on the host is sent over piece by piece, each
    while the last is scored.
    """
    if scale <= 0:
        raise ValueError(f"scale is {scale}; it must be above 0")
    given = [corpus] if isinstance(corpus, Documents) else corpus
    parts = [part for part in given if part.count]
    count = sum(part.count for part in parts)
    if count >= 1 << 31:
        raise ValueError(f"{count} documents; a key has room for {(1 << 31) - 1}")
    widest = max((part.width for part in parts), default=0)
    if widest > WIDEST:
        raise ValueError(f"a document has {widest} vectors; at most {WIDEST} fit a program")
    nothing = torch.full((len(queries), min(top, count)), NOTHING, device=queries.device)
    if not nothing.numel():
        return _decode(nothing)
    question = _question(parts[0], queries, top, scale, score, tile)
    if allowed is not None:
        allowed = allowed.to(device=queries.device, dtype=torch.bool)
    best, enough, base = [], [], 0
    for part in parts:
        allowed_part = None if allowed is None else allowed[base : base + part.count]
        if part.vectors.device != queries.device:
            best.append(_best_of_host(part, question, allowed_part, base))
        elif part.count <= max(DENSE, _capacity(top)):
            best.append(_all_keys(part, question, allowed_part, base=base))
        else:
            keys, fitting = _sampled_best(part, question, allowed_part, base)
            best.append(keys)
            enough.append(fitting)
        base += part.count
    answer = _decode(_largest(best, top))
    # The host waits only here, when everything that there is to do has been handed over.
    if all(map(bool, enough)):
        return answer
    return _decode(_best_in_pieces(parts, question, allowed))


def _question(
    corpus: Documents, queries: Tensor, top: int, scale: float, score: Score, tile: Tile | None
) -> _Question:
    dtype = corpus.vectors.dtype
    units = torch.ones(len(queries), device=queries.device)
    if dtype == torch.int8:
        # A power of two, so that numbers of few digits, such as integers, stay what they are.
        largest = queries.float().abs().amax(dim=1)
        units = torch.ldexp(units, torch.frexp(largest / 127).exponent)
    count = 3 if dtype == torch.int8 else 1 if dtype in (torch.float32, queries.dtype) else 2
    parts = []
    rest = queries.float() / units[:, None]
    for _ in range(count):
        parts.append((rest.round() if dtype == torch.int8 else rest).to(dtype))
        rest = (rest - parts[-1].float()) * STEPS[dtype]
    tile = tile or Tile.fitting(len(queries), dtype, count, shared_memory(queries.device))
    return _Question(torch.stack(parts), units, top, scale, score, tile)


def _rank(top: int) -> int:
    """Say which of a sample's best, counted from 1, sets the bound for the `top` best of all."""
    expected = top / SAMPLE
    return math.ceil(expected + DEVIATIONS * math.sqrt(expected)) + SPARE


def _capacity(top: int) -> int:
    """Make room for twice as many keys as will probably reach the bound."""
    return 2 * SAMPLE * _rank(top)


def _sampled_best(
    corpus: Documents, question: _Question, allowed: Tensor | None, base: int
) -> tuple[Tensor, Tensor]:
    """Find keys (queries, capacity) among which the largest are, and whether they surely are."""
    sample = _all_keys(corpus, question, allowed, base=base, stride=SAMPLE)
    least = sample.topk(_rank(question.top)).values[:, -1].contiguous()
    queries, capacity = question.parts.shape[1], _capacity(question.top)
    keys = torch.full((queries, capacity), NOTHING, device=least.device)
    filled = torch.zeros(queries, dtype=torch.int32, device=least.device)
    _launch(corpus, question, allowed, keys, corpus.count, least=least, filled=filled, base=base)
    # A sample with too few documents bounds nothing: then all that there are have passed.
    enough = (filled >= question.top) | (least == NOTHING)
    return keys, (enough & (filled <= capacity)).all()


def _best_in_pieces(
    parts: Sequence[Documents], question: _Question, allowed: Tensor | None
) -> Tensor:
    """Find the largest keys without a bound, for a corpus in an order that misleads a sample."""
    best: list[Tensor] = []
    base = 0
    for part in parts:
        allowed_part = None if allowed is None else allowed[base : base + part.count]
        if part.vectors.device != question.parts.device:
            keys = _best_of_host(part, question, allowed_part, base)
            best = [_largest([*best, keys], question.top)]
        else:
            for first in range(0, part.count, DENSE):
                keys = _all_keys(part, question, allowed_part, base=base, first=first, most=DENSE)
                best = [_largest([*best, keys], question.top)]
        base += part.count
    return best[0]


def _best_of_host(
    corpus: Documents, question: _Question, allowed: Tensor | None, base: int
) -> Tensor:
    """Find the same where the vectors are on the host."""
    best: list[Tensor] = []
    for start, piece in _stream(corpus, question.parts.device):
        allowed_part = None if allowed is None else allowed[start : start + piece.count]
        keys = _all_keys(piece, question, allowed_part, base=base + start)
        best = [_largest([*best, keys], question.top)]
    return _largest(best, question.top)


def _largest(keys: Sequence[Tensor], top: int) -> Tensor:
    """Keep the `top` largest keys of each query, in order, or all that there are."""
    together = keys[0] if len(keys) == 1 else torch.cat(list(keys), dim=1)
    return together.topk(min(top, together.shape[1])).values


def _all_keys(
    corpus: Documents,
    question: _Question,
    allowed: Tensor | None,
    *,
    base: int = 0,
    first: int = 0,
    stride: int = 1,
    most: int | None = None,
) -> Tensor:
    """Write the key of every stride-th document from the first on, (queries, documents)."""
    count = triton.cdiv(corpus.count - first, stride)
    count = count if most is None else min(count, most)
    keys = torch.full((question.parts.shape[1], count), NOTHING, device=question.parts.device)
    _launch(corpus, question, allowed, keys, count, base=base, first=first, stride=stride)
    return keys


def _launch(
    corpus: Documents,
    question: _Question,
    allowed: Tensor | None,
    keys: Tensor,
    count: int,
    *,
    least: Tensor | None = None,
    filled: Tensor | None = None,
    base: int = 0,
    first: int = 0,
    stride: int = 1,
) -> None:
    tile, queries = question.tile, question.parts.shape[1]
    dimension = corpus.vectors.shape[1]
    width = int(triton.next_power_of_2(max(1, corpus.width)))
    texts = max(1, tile.vectors // width)
    blocks = triton.cdiv(queries, tile.queries)
    # Triton wants a pointer where none is read.
    none = question.units
    _score[(triton.cdiv(count, texts) * blocks,)](
        corpus.vectors,
        none if corpus.offsets is None else corpus.offsets,
        none if corpus.scales is None else corpus.scales,
        none if allowed is None else allowed,
        question.parts,
        question.units,
        none if least is None else least,
        none if filled is None else filled,
        keys,
        count,
        queries,
        corpus.width,
        question.scale,
        base,
        first,
        stride,
        keys.shape[1],
        DIM=dimension,
        DOCUMENTS=texts,
        WIDTH=width,
        QUERIES=tile.queries,
        CHUNK=tile.chunk,
        PARTS=len(question.parts),
        STEP=STEPS[corpus.vectors.dtype],
        RAGGED=corpus.offsets is not None,
        SCALED=corpus.scales is not None,
        FILTERED=allowed is not None,
        FULL=corpus.offsets is None and allowed is None and corpus.width == width,
        EVEN=dimension % tile.chunk == 0,
        SOFTMAX=question.score == "softmax",
        SELECT=least is not None,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _decode(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Take keys apart into documents' positions and scores."""
    ordered = (keys >> 32).to(torch.int32)
    scores = (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)
    positions = 0x7FFFFFFF - (keys & 0xFFFFFFFF)
    nothing = keys == NOTHING
    return positions.masked_fill(nothing, -1), scores.masked_fill(nothing, -torch.inf)


def _stream(corpus: Documents, device: torch.device) -> Iterator[tuple[int, Documents]]:
    """Send pieces to the device, each while the one before is worked on; pinned memory is fast."""
    starts = range(0, corpus.count, DENSE)
    parts = [(start, corpus.part(start, min(start + DENSE, corpus.count))) for start in starts]
    if device.type != "cuda":
        for start, part in parts:
            yield start, _send(part, device, None)
        return
    working, copying = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    longest = max(len(part.vectors) for _, part in parts)
    shape = (longest, corpus.vectors.shape[1])
    copying.wait_stream(working)
    buffers = [torch.empty(shape, dtype=corpus.vectors.dtype, device=device) for _ in range(2)]
    used = [torch.cuda.Event() for _ in range(2)]
    arrived = [torch.cuda.Event() for _ in range(2)]
    sent: list[Documents] = []

    def send(piece: int) -> None:
        side = piece % 2
        with torch.cuda.stream(copying):
            copying.wait_event(used[side])
            sent.append(_send(parts[piece][1], device, buffers[side]))
            arrived[side].record(copying)

    send(0)
    for piece, (start, _) in enumerate(parts):
        if piece + 1 < len(parts):
            send(piece + 1)
        working.wait_event(arrived[piece % 2])
        yield start, sent[piece]
        used[piece % 2].record(working)


def _send(part: Documents, device: torch.device, buffer: Tensor | None) -> Documents:
    vectors = part.vectors.to(device) if buffer is None else buffer[: len(part.vectors)]
    if buffer is not None:
        vectors.copy_(part.vectors, non_blocking=True)
    offsets = None if part.offsets is None else part.offsets.to(device, non_blocking=True)
    scales = None if part.scales is None else part.scales.to(device, non_blocking=True)
    return replace(part, vectors=vectors, offsets=offsets, scales=scales)
