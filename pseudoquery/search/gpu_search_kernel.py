"""The Triton kernels of `gpu_search`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _multiplied(sums, part, x, inside, EVEN: tl.constexpr):
    """Add the products of a part of some queries (QUERIES, CHUNK) with vectors (ROWS, CHUNK)."""
    q = tl.load(part) if EVEN else tl.load(part, mask=inside[None, :], other=0)
    return tl.dot(q, tl.trans(x), sums, input_precision="ieee", out_dtype=sums.dtype)


@triton.jit
def _dots(
    vectors, parts, source, real, asking, queries,
    DIM: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr,
    FULL: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Multiply queries with vectors, (QUERIES, ROWS), and join the parts of a query."""
    SUM: tl.constexpr = tl.int32 if vectors.dtype.element_ty == tl.int8 else tl.float32
    inner = tl.arange(0, CHUNK)
    dots = tl.zeros((asking.shape[0], source.shape[0]), SUM)
    finer = tl.zeros((asking.shape[0], source.shape[0]), SUM)
    finest = tl.zeros((asking.shape[0], source.shape[0]), SUM)
    for begin in range(0, DIM, CHUNK):
        dims = begin + inner
        at = vectors + source[:, None] * DIM + dims[None, :]
        part = parts + asking[:, None] * DIM + dims[None, :]
        if FULL and EVEN:
            x = tl.load(at)
        else:
            x = tl.load(at, mask=real[:, None] & (dims < DIM)[None, :], other=0)
        dots = _multiplied(dots, part, x, dims < DIM, EVEN)
        if PARTS > 1:
            finer = _multiplied(finer, part + queries * DIM, x, dims < DIM, EVEN)
        if PARTS > 2:
            finest = _multiplied(finest, part + 2 * queries * DIM, x, dims < DIM, EVEN)
    dots = dots.to(tl.float32)
    if PARTS > 2:
        dots += finest.to(tl.float32) * (1.0 / (STEP * STEP))
    if PARTS > 1:
        dots += finer.to(tl.float32) * (1.0 / STEP)
    return dots


@triton.jit
def _document_scores(dots, scale, FULL: tl.constexpr, SOFTMAX: tl.constexpr):
    """Score documents by their dots (QUERIES, WIDTH, DOCUMENTS); what overflows is infinite."""
    if SOFTMAX:
        # Eq. 4-6, as the largest dot plus the weighted mean of what the others lack; in powers of
        # two, since that is what the hardware knows.
        largest = tl.max(dots, axis=1)
        most = largest if FULL else tl.where(largest == float("-inf"), 0.0, largest)
        change = scale * 1.4426950408889634
        lacking = dots * change - (most * change)[:, None, :]
        share = tl.exp2(lacking)
        weighted = share * lacking
        if not FULL:
            weighted = tl.where(share > 0.0, weighted, 0.0)
        mean = tl.sum(weighted, axis=1) / tl.sum(share, axis=1)
        scores = most * scale + mean * 0.6931471805599453
        scores = tl.where(scores != scores, float("inf"), scores)
        if not FULL:
            scores = tl.where(largest == float("-inf"), float("-inf"), scores)
    else:
        scores = tl.max(tl.where(dots != dots, float("inf"), dots), axis=1) * scale
    return tl.where(scores == 0.0, 0.0, scores)  # Minus zero is zero.


@triton.jit
def _write(
    keys, capacity, key, position, actual, query, real_query, least, filled, SELECT: tl.constexpr
):  # fmt: skip
    """Write keys (QUERIES, DOCUMENTS): all, each to its position, or those from `least` on."""
    if SELECT:
        bound = tl.load(least + query, mask=real_query, other=0)
        good = (key >= bound[:, None]) & actual[None, :] & real_query[:, None]
        number = tl.sum(good.to(tl.int32), axis=1)
        slot = tl.atomic_add(filled + query, number, mask=number > 0, sem="relaxed")
        slot = slot[:, None] + tl.cumsum(good.to(tl.int32), axis=1) - 1
        room = good & (slot < capacity)
    else:
        slot = tl.broadcast_to(position[None, :], key.shape)
        room = actual[None, :] & real_query[:, None]
    tl.store(keys + query.to(tl.int64)[:, None] * capacity + slot, key, mask=room)


# A corpus of another size, or an offset of another alignment, needs no kernel of its own.
@triton.jit(
    do_not_specialize=["count", "queries", "base", "first", "stride", "capacity"],
    do_not_specialize_on_alignment=["offsets", "scales", "allowed"],
)
def _score(
    vectors, offsets, scales, allowed, parts, units, least, filled, keys,
    count, queries, width, scale, base, first, stride, capacity,
    DIM: tl.constexpr, DOCUMENTS: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr,
    CHUNK: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr, RAGGED: tl.constexpr,
    SCALED: tl.constexpr, FILTERED: tl.constexpr, FULL: tl.constexpr, EVEN: tl.constexpr,
    SOFTMAX: tl.constexpr, SELECT: tl.constexpr,
):  # fmt: skip
    """Score some documents for some queries, and write their keys: all, or those from `least` on.

    A document has WIDTH rows of the product, of which those it lacks are neither read nor count.
    FULL says that no document lacks any, and EVEN that the chunks end where the vectors do: then
    nothing has to be masked.
    """
    ROWS: tl.constexpr = DOCUMENTS * WIDTH
    # Programs next to each other share their documents, which are then read but once from memory.
    query_blocks = tl.cdiv(queries, QUERIES)
    block = tl.program_id(0) // query_blocks
    query = (tl.program_id(0) % query_blocks) * QUERIES + tl.arange(0, QUERIES)
    real_query = query < queries
    asking = tl.minimum(query, queries - 1)  # a query too many repeats the last one
    position = block * DOCUMENTS + tl.arange(0, DOCUMENTS)
    document = first + position.to(tl.int64) * stride
    actual = position < count
    # All first vectors, then all second ones, and so on: in the tensor cores' layout, a thread then
    # holds all dots of a document, and the softmax over them needs no other thread.
    row_position = block * DOCUMENTS + tl.arange(0, ROWS) % DOCUMENTS
    nth = tl.arange(0, ROWS) // DOCUMENTS
    real = row_position < count
    if FULL:
        row_position = tl.minimum(row_position, count - 1)
    row_document = first + row_position.to(tl.int64) * stride
    if FILTERED:
        actual = actual & (tl.load(allowed + document, mask=actual, other=0) != 0)
        if tl.max(actual.to(tl.int32)) == 0:
            return
        real = real & (tl.load(allowed + row_document, mask=real, other=0) != 0)
    if RAGGED:
        start = tl.load(offsets + row_document, mask=real, other=0)
        real = real & (nth < tl.load(offsets + row_document + 1, mask=real, other=0) - start)
    else:
        start = row_document * width
        real = real & (nth < width)
    source = start + nth

    dots = _dots(vectors, parts, source, real, asking, queries, DIM, CHUNK, PARTS, STEP, FULL, EVEN)
    if vectors.dtype.element_ty == tl.int8:
        dots *= tl.load(units + asking)[:, None]
    if SCALED:
        dots *= tl.load(scales + source, mask=real, other=0.0)[None, :]
    if not FULL:
        # Minus infinity, not zero: what is missing must neither win nor weigh.
        dots = tl.where(real[None, :], dots, float("-inf"))
    dots = tl.reshape(dots, (QUERIES, WIDTH, DOCUMENTS))
    scores = _document_scores(dots, scale, FULL, SOFTMAX)
    # The bits of a float are in its order once those of a negative one, less its sign, are flipped.
    bits = scores.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = (bits.to(tl.int64) << 32) + (0x7FFFFFFF - base - document)[None, :]
    _write(keys, capacity, key, position, actual, query, real_query, least, filled, SELECT)
