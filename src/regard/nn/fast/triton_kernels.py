"""The Triton kernels behind `fused_kernels`, which says what they buy; importing this module needs Triton."""

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def add_layer_norm(x, update, weight, bias, result, width, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row: result = (s - mean) / sqrt(variance + eps) * weight + bias, with s = x + update."""
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    valid = column < width
    s = tl.load(x + row + column, valid, 0.0).to(tl.float32) + tl.load(update + row + column, valid, 0.0).to(tl.float32)
    centered = tl.where(valid, s - tl.sum(s, 0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(centered * centered, 0) / width + eps)
    w, b = tl.load(weight + column, valid, 0.0).to(tl.float32), tl.load(bias + column, valid, 0.0).to(tl.float32)
    tl.store(result + row + column, (centered * scale * w + b).to(result.dtype.element_ty), valid)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def packed_attention(  # type: ignore[no-untyped-def]
    query,
    key,
    value,
    result,
    starts,
    stride,
    scale,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """One head and one block of queries of one sequence: softmax(scale * q k) v, block by block of keys.

    `stride` is that of a token in query, key and value. `scale` includes log2(e), so that exp2 serves as exp.
    """
    sequence, block = tl.program_id(0) // BLOCKS, tl.program_id(0) % BLOCKS
    start = tl.load(starts + sequence).to(tl.int64)
    length = (tl.load(starts + sequence + 1) - start).to(tl.int32)
    if block * BLOCK_T >= length:
        return
    t, column = block * BLOCK_T + tl.arange(0, BLOCK_T), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    q = tl.load(query + (start + t)[:, None] * stride + column[None, :], (t < length)[:, None], 0.0)
    highest = tl.full([BLOCK_T], -1e30, tl.float32)
    total = tl.zeros([BLOCK_T], tl.float32)
    mixed = tl.zeros([BLOCK_T, WIDTH], tl.float32)
    for first in range(0, length, BLOCK_S):
        s = first + tl.arange(0, BLOCK_S)
        place = (start + s)[:, None] * stride + column[None, :]
        k = tl.load(key + place, (s < length)[:, None], 0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        allowed = (s < length)[None, :]
        if CAUSAL:
            allowed = allowed & (s[None, :] <= t[:, None])
        scores = tl.where(allowed, scores, -1e30)
        new = tl.maximum(highest, tl.max(scores, 1))
        weights, correction = tl.exp2(scores - new[:, None]), tl.exp2(highest - new)
        v = tl.load(value + place, (s < length)[:, None], 0.0)
        total = total * correction + tl.sum(weights, 1)
        mixed = mixed * correction[:, None] + tl.dot(weights.to(v.dtype), v)
        highest = new
    place = (start + t)[:, None] * (HEADS * WIDTH) + column[None, :]
    tl.store(result + place, (mixed / total[:, None]).to(result.dtype.element_ty), (t < length)[:, None])


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def mean_pool(x, starts, result, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The mean of one sequence's vectors, for one block of columns; 0 for an empty sequence."""
    sequence = tl.program_id(0)
    start, end = tl.load(starts + sequence).to(tl.int64), tl.load(starts + sequence + 1).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(start, end, ROWS):
        row = first + tl.arange(0, ROWS)
        valid = (row < end)[:, None] & (column < width)[None, :]
        total += tl.sum(tl.load(x + row[:, None] * width + column[None, :], valid, 0.0).to(tl.float32), 0)
    mean = total / tl.maximum(end - start, 1).to(tl.float32)
    tl.store(result + sequence.to(tl.int64) * width + column, mean, column < width)
