"""The Triton kernels of `kmeans_gpu`."""

from __future__ import annotations

import triton
import triton.language as tl

LOW = tl.constexpr(2048.0)
"""A centroid is two half-precision numbers, high + low / LOW: 22 bits of it (16 in bfloat16)."""
PAIRS = tl.constexpr(8192)
"""Numbers of pairs of means compared at once."""
BLOCK = tl.constexpr(256)
"""Tokens looked at together where only their weights or labels are read."""
STRIP = tl.constexpr(128)
"""Dimensions whose variance one program finds: as many programs as keep the memory busy."""
ROWS = tl.constexpr(8)
"""Tokens that it reads at once: few registers, many programs."""


@triton.jit
def _extent(weights, width):
    """Say where the last token that counts ends, and how many count."""
    length = 0
    count = 0
    for first in range(0, width, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        real = tl.load(weights + rows, mask=rows < width, other=0).to(tl.float32) > 0
        count += tl.sum(real.to(tl.int32), axis=0)
        length = tl.maximum(length, tl.max(tl.where(real, rows + 1, 0), axis=0))
    return length, count


# The width is no constant here, either, as in `_cluster`.
@triton.jit(do_not_specialize=["width"])
def _variance(tokens, weights, variances, width, DIM: tl.constexpr, STRIPS: tl.constexpr):
    """Find the variance of one document's tokens in STRIP dimensions."""
    document = (tl.program_id(0) // STRIPS).to(tl.int64)
    dims = tl.program_id(0) % STRIPS * STRIP + tl.arange(0, STRIP)
    tokens += document * width * DIM
    weights += document * width
    length, _ = _extent(weights, width)
    # E|x - o|^2 - |E(x - o)|^2 is the same from any origin o and needs one reading, but the two may
    # nearly cancel. They do not if o is a token of the document, here its last: the farther it is
    # from the mean, the larger is the variance by its own share. Of n tokens that weigh alike, the
    # error is n roundings at most, and equal tokens have exactly no variance.
    last = tl.maximum(length - 1, 0)
    origin = tl.load(tokens + last * DIM + dims, mask=dims < DIM, other=0.0).to(tl.float32)
    sums = tl.zeros((ROWS, STRIP), tl.float32)
    squares = tl.zeros((ROWS, STRIP), tl.float32)
    masses = tl.zeros((ROWS,), tl.float32)
    # Four blocks are on their way at a time.
    for first in tl.range(0, length, ROWS, num_stages=4):
        rows = first + tl.arange(0, ROWS)
        weight = tl.load(weights + rows, mask=rows < length, other=0).to(tl.float32)
        x = tl.load(
            tokens + rows[:, None] * DIM + dims[None, :],
            mask=(rows < length)[:, None] & (dims < DIM)[None, :],
            other=0.0,
        )
        away = x.to(tl.float32) - origin[None, :]
        weighted = away * weight[:, None]
        sums += weighted
        squares += weighted * away
        masses += weight
    total = tl.sum(masses, axis=0)
    total = tl.where(total > 0, total, 1.0)
    mean = tl.sum(sums, axis=0) / total
    square = tl.sum(tl.sum(squares, axis=0), axis=0) / total
    variance = tl.maximum(square - tl.sum(mean * mean, axis=0), 0.0)
    tl.store(variances + tl.program_id(0), variance)


@triton.jit
def _rounded(number):
    """Round a positive number to bfloat16, half to even; Triton's interpreter would cut it off."""
    bits = number.to(tl.int32, bitcast=True)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits & -0x10000).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["width"])
def _write_positions(
    positions, weights, variances, locality, width, k, STRIPS: tl.constexpr, LARGEST: tl.constexpr
):
    """Write each token's position: in k-ths of the text from its middle, times a k-th's size."""
    document = tl.program_id(0).to(tl.int64)
    positions += document * width
    weights += document * width
    length, _ = _extent(weights, width)
    variance = 0.0
    for strip in tl.static_range(STRIPS):
        variance += tl.load(variances + document * STRIPS + strip)
    unit = locality * _rounded(tl.sqrt_rn(variance))
    total = 0.0
    for first in range(0, length, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        weight = tl.load(weights + rows, mask=rows < length, other=0).to(tl.float32)
        total += tl.sum(weight, axis=0)
    before = 0.0
    for first in range(0, length, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        weight = tl.load(weights + rows, mask=rows < length, other=0).to(tl.float32)
        middle = before + tl.cumsum(weight, axis=0) - weight * 0.5
        position = unit * (k * (tl.div_rn(middle, total) - 0.5))
        position = tl.minimum(tl.maximum(position, -LARGEST), LARGEST)
        tl.store(positions + rows, position.to(positions.dtype.element_ty), mask=rows < length)
        before += tl.sum(weight, axis=0)


@triton.jit
def _seed_positions(positions, seeds, length, k, COLUMNS: tl.constexpr, POSITIONED: tl.constexpr):
    """Say where the clusters stand at first (K,); all at 0 if positions do not count."""
    K: tl.constexpr = COLUMNS // 2
    stands = tl.zeros((K,), tl.float32)
    if POSITIONED:
        real = (tl.arange(0, COLUMNS) % K < k) & (seeds < length)
        both = tl.load(positions + seeds, mask=real, other=0.0).to(tl.float32)
        stands = _per_cluster(both, K)
    return stands


@triton.jit
def _position(positions, rows, length, POSITIONED: tl.constexpr):
    """Read the positions of tokens; 0 if they do not count."""
    position = tl.zeros(rows.shape, tl.float32)
    if POSITIONED:
        position = tl.load(positions + rows, mask=rows < length, other=0.0).to(tl.float32)
    return position


@triton.jit
def _with_ways(squares, stands, position, POSITIONED: tl.constexpr):
    """Squares of means (K,) -> (K, 1); (K, tokens) with those of the ways to tokens' positions."""
    lengths = squares[:, None]
    if POSITIONED:
        way = position[None, :] - stands[:, None]
        lengths = lengths + way * way
    return lengths


@triton.jit
def _add_positions(stood, member, positions, rows, length, POSITIONED: tl.constexpr):
    """Add tokens' positions, weighted by member (tokens, COLUMNS), to what stood in each column."""
    if POSITIONED:
        # Read again: each thread has other tokens here than where they are compared.
        stood += member * _position(positions, rows, length, POSITIONED)[:, None]
    return stood


@triton.jit
def _seeds(weights, ranks, length, count, k, COLUMNS: tl.constexpr, GIVEN: tl.constexpr):
    """Turn ranks among the tokens that count, given or at equal intervals, into rows."""
    cluster = tl.arange(0, COLUMNS) % (COLUMNS // 2)
    if GIVEN:
        rank = tl.load(ranks + cluster, mask=cluster < k, other=0).to(tl.int32)
    else:
        rank = cluster * count // k
    rank = tl.minimum(rank, count - 1)
    # A document in which nothing counts takes its first row: its clusters get no tokens.
    seed = tl.zeros((COLUMNS,), tl.int32)
    seen = 0
    for first in range(0, length, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        real = tl.load(weights + rows, mask=rows < length, other=0).to(tl.float32) > 0
        running = seen + tl.cumsum(real.to(tl.int32), axis=0)
        hit = (running[:, None] == rank[None, :] + 1) & real[:, None]
        seed += tl.sum(tl.where(hit, rows[:, None], 0), axis=0)
        seen += tl.sum(real.to(tl.int32), axis=0)
    return seed


@triton.jit
def _first_equal(means, stands, living, k, DIM: tl.constexpr, K: tl.constexpr):
    """Point each of k means to the first one equal to it, of those whose `living` is above 0.

    Where they stand must be the same, too.
    """
    # All pairs at once, so that a mean is read but once; in pieces that leave registers free.
    PIECE: tl.constexpr = PAIRS // (K * K)
    cluster = tl.arange(0, K)
    differing = (stands[:, None] != stands[None, :]).to(tl.int32)
    for start in range(0, DIM, PIECE):
        dims = start + tl.arange(0, PIECE)
        real = (cluster < k)[:, None] & (dims < DIM)[None, :]
        each = tl.load(means + cluster[:, None] * DIM + dims[None, :], mask=real, other=0.0)
        differing += tl.sum((each[:, None, :] != each[None, :, :]).to(tl.int32), axis=2)
    both = tl.minimum(living[:, None], living[None, :])
    same = (differing == 0) & (both > 0) & (cluster < k)[None, :]
    return tl.minimum(cluster, tl.min(tl.where(same, cluster[None, :], K), axis=1))


@triton.jit
def _halves(centroids, DTYPE: tl.constexpr, COLUMNS: tl.constexpr):
    """(dims, COLUMNS), each cluster twice -> its high half, then what that leaves, times LOW."""
    high = centroids.to(DTYPE)
    low = ((centroids - high.to(tl.float32)) * LOW).to(DTYPE)
    return tl.where(tl.arange(0, COLUMNS)[None, :] < COLUMNS // 2, high, low)


@triton.jit
def _nearest(dots, lengths, alive, COLUMNS: tl.constexpr):
    """Dots with both halves (COLUMNS, tokens) -> the first of the nearest living clusters.

    Lengths (K, 1) are the squares of the means; (K, tokens) if each token's position counts.
    """
    column = tl.arange(0, COLUMNS)
    dots = dots * tl.where(column < COLUMNS // 2, 1.0, 1.0 / LOW)[:, None]
    dots = tl.sum(tl.reshape(dots, (2, COLUMNS // 2, dots.shape[1])), axis=0)
    # |x - c|^2 without |x|^2, which is the same for every cluster.
    distances = tl.where(alive[:, None], lengths - 2.0 * dots, float("inf"))
    return tl.argmin(distances, axis=0, tie_break_left=True)


@triton.jit
def _add_members(sums, rows, member, WEIGHTED: tl.constexpr):
    """Add tokens (tokens, dims), weighted by member (tokens, COLUMNS), to sums (dims, COLUMNS)."""
    high = member.to(rows.dtype)
    sums = tl.dot(tl.trans(rows), high, sums)
    if WEIGHTED:
        # A weight of any size needs two halves; 0 and 1 are exact in one.
        low = ((member - high.to(tl.float32)) * LOW).to(rows.dtype)
        sums += tl.dot(tl.trans(rows), low) * (1.0 / LOW)
    return sums


@triton.jit
def _mean(sums, filled, POSITIONED: tl.constexpr):
    """Divide sums (dims, COLUMNS) by their weight (COLUMNS,); those of an empty cluster are 0."""
    filled = tl.where(filled > 0, filled, 1.0)
    mean = sums / filled
    if POSITIONED:
        # Stretches of the same token have means that are equal to the bit, and are joined.
        mean = tl.div_rn(sums, filled[None, :])
    return mean


@triton.jit
def _per_cluster(columns, K: tl.constexpr):
    """Take what both columns of a cluster have alike (2 * K,) once (K,)."""
    return tl.sum(tl.reshape(columns, (2, K)), axis=0) * 0.5


# A batch of another width or size needs no kernel of its own.
@triton.jit(do_not_specialize=["total", "width", "iterations"])
def _cluster(
    tokens, weights, ranks, positions, centroids, counts, assignments, labels,
    total, width, iterations, k,
    DIM: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
    TOKENS: tl.constexpr, WEIGHTED: tl.constexpr, GIVEN: tl.constexpr, POSITIONED: tl.constexpr,
):  # fmt: skip
    """Cluster one document."""
    K: tl.constexpr = COLUMNS // 2
    DTYPE: tl.constexpr = tokens.dtype.element_ty
    document = tl.program_id(0).to(tl.int64)
    # Within a document, 32-bit offsets do, and leave registers to the sums.
    tokens += document * width * DIM
    weights += document * width
    assignments += document * width
    labels += document * width
    positions += document * width
    ranks += document * k
    centroids += document * k * DIM
    counts += document * k
    length, real_tokens = _extent(weights, width)
    blocks = tl.cdiv(length, TOKENS)

    # Every cluster has two columns, one for each half of its centroid.
    cluster = tl.arange(0, COLUMNS) % K
    once = tl.arange(0, COLUMNS) < tl.minimum(k, K)
    inner = tl.arange(0, CHUNK)
    single = tl.arange(0, K)
    seeds = _seeds(weights, ranks, length, real_tokens, k, COLUMNS, GIVEN)
    means = ()
    for c in tl.static_range(CHUNKS):
        dims = c * CHUNK + inner
        real = (cluster[None, :] < k) & (dims[:, None] < DIM)
        own = tl.load(tokens + seeds[None, :] * DIM + dims[:, None], mask=real, other=0.0)
        means = means + (own.to(tl.float32),)
        cells = cluster[None, :] * DIM + dims[:, None]
        tl.store(centroids + cells, means[c], mask=once[None, :] & (dims[:, None] < DIM))
    tl.debug_barrier()  # What some threads wrote, others now read.
    # A seed that equals an earlier one is dead from the start, as an empty cluster is.
    stands = _seed_positions(positions, seeds, length, k, COLUMNS, POSITIONED)
    anyone = tl.full((K,), 1.0, tl.float32)
    alive = (_first_equal(centroids, stands, anyone, k, DIM, K) == single) & (single < k)
    living = alive.to(tl.float32)

    step = 0
    changed = 1
    while (changed > 0) & (step <= iterations):
        halves = ()
        sums = ()
        squares = tl.zeros((COLUMNS,), tl.float32)
        for c in tl.static_range(CHUNKS):
            halves = halves + (_halves(means[c], DTYPE, COLUMNS),)
            squares += tl.sum(means[c] * means[c], axis=0)
            sums = sums + (tl.zeros((CHUNK, COLUMNS), tl.float32),)
        squares = _per_cluster(squares, K)
        # Added up at the pass' end: warps wait for each other to add.
        fills = tl.zeros((TOKENS, COLUMNS), tl.float32)
        stood = tl.zeros((TOKENS, COLUMNS), tl.float32)
        changes = tl.zeros((TOKENS,), tl.int32)
        for b in range(blocks):
            # To and fro, so that what was read last, and may still be in the cache, comes first.
            block = tl.where(step % 2 == 0, b, blocks - 1 - b)
            rows = block * TOKENS + tl.arange(0, TOKENS)
            # Asked for before the tokens, which take longer to come.
            weight = tl.load(weights + rows, mask=rows < length, other=0).to(tl.float32)
            known = tl.where(step > 0, length, 0)  # at first there are no labels
            before = tl.load(labels + step % 2 * total + rows, mask=rows < known, other=-1)
            position = _position(positions, rows, length, POSITIONED)
            dots = tl.zeros((COLUMNS, TOKENS), tl.float32)
            kept = ()
            for c in tl.static_range(CHUNKS):
                dims = c * CHUNK + inner
                x = tl.load(
                    tokens + rows[:, None] * DIM + dims[None, :],
                    mask=(rows < length)[:, None] & (dims < DIM)[None, :],
                    other=0.0,
                )
                # Clusters by tokens, so that every warp has tokens of its own.
                dots = tl.dot(tl.trans(halves[c]), tl.trans(x), dots)
                kept = kept + (x,)
            lengths = _with_ways(squares, stands, position, POSITIONED)
            label = _nearest(dots, lengths, living > 0, COLUMNS)
            label = tl.where(weight > 0, label, -1)
            changes |= (label != before).to(tl.int32)
            tl.store(labels + (step + 1) % 2 * total + rows, label, mask=rows < length)
            member = tl.where(label[:, None] == cluster[None, :], weight[:, None], 0.0)
            fills += member
            stood = _add_positions(stood, member, positions, rows, length, POSITIONED)
            grown = ()
            for c in tl.static_range(CHUNKS):
                grown = grown + (_add_members(sums[c], kept[c], member, WEIGHTED),)
            sums = grown
        changed = tl.max(changes, axis=0)
        filled = tl.sum(fills, axis=0)
        means = ()
        for c in tl.static_range(CHUNKS):
            means = means + (_mean(sums[c], filled, POSITIONED),)
        living = _per_cluster(filled, K)
        if POSITIONED:
            stands = _per_cluster(tl.sum(stood, axis=0), K) / tl.where(living > 0, living, 1.0)
        # The next pass reads the labels that this one wrote, perhaps in other threads.
        tl.debug_barrier()
        step += 1

    for c in tl.static_range(CHUNKS):
        dims = c * CHUNK + inner
        cells = cluster[None, :] * DIM + dims[:, None]
        tl.store(centroids + cells, means[c], mask=once[None, :] & (dims[:, None] < DIM))
    tl.debug_barrier()
    _join(
        centroids, counts, assignments, labels + step % 2 * total, living, length, width, k, DIM, K
    )


@triton.jit
def _join(
    centroids, counts, assignments, labels, living, length, width, k,
    DIM: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Join clusters whose means are equal: their joint mean is the same mean."""
    cluster = tl.arange(0, K)
    # Wherever they stand. An empty cluster's zeros must not swallow a mean that happens to be zero.
    found = _first_equal(centroids, tl.zeros((K,), tl.float32), living, k, DIM, K)
    joined = tl.where(found[None, :] == cluster[:, None], living[None, :], 0.0)
    tl.store(counts + cluster, tl.sum(joined, axis=1), mask=cluster < k)
    gone = ((found != cluster) | (living == 0.0)) & (cluster < k)
    for start in range(0, DIM, 64):
        dims = start + tl.arange(0, 64)
        cells = cluster[:, None] * DIM + dims[None, :]
        nothing = tl.zeros((K, 64), tl.float32)
        tl.store(centroids + cells, nothing, mask=gone[:, None] & (dims < DIM)[None, :])
    for first in range(0, width, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        label = tl.load(labels + rows, mask=rows < length, other=-1)
        match = label[:, None] == cluster[None, :]
        moved = tl.sum(tl.where(match, found[None, :], 0), axis=1)
        moved = tl.where(label >= 0, moved, -1)
        tl.store(assignments + rows, moved.to(tl.int64), mask=rows < width)
