"""The Triton kernels of `single_row` and of `fused_kernels`, which say what they buy.

For a single row: norm with matrix-vector product, attention of one query, token embedding. For texts: residual with
norm, attention in packed sequences, means of vectors.

Import this module only where the kernels are used, since Triton may be missing. Names in capitals are compile-time
constants. Sums are accumulated in float32 and rounded where a module would return them.
"""

# mypy: ignore-errors
# Triton compiles the kernels; Python's types do not describe their values.

from __future__ import annotations

import math

import triton
import triton.language as tl

HALF_ROOT = tl.constexpr(0.5**0.5)
# The tanh approximation of GELU is x times the logistic function of SLOPE * (x + CUBIC x^3).
GELU_SLOPE, GELU_CUBIC = tl.constexpr(2 * math.sqrt(2 / math.pi)), tl.constexpr(0.044715)


@triton.jit
def product(
    x,
    gain,
    shift,
    weight,
    bias,
    before,
    out,
    epsilon,
    stride,
    outputs,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """out = before + activation(weight norm(x) + bias) for ROWS outputs; parts whose arguments are None are skipped."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    row_mask, column_mask = rows < outputs, columns < INPUTS
    addresses = weight + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    weights = tl.load(addresses, mask=row_mask[:, None] & column_mask[None, :], other=0.0)
    vector = tl.load(x + columns, mask=column_mask, other=0.0).to(tl.float32)
    if gain is not None:
        gains = tl.load(gain + columns, mask=column_mask, other=0.0).to(tl.float32)
        shifts = tl.load(shift + columns, mask=column_mask, other=0.0).to(tl.float32)
    if bias is not None:
        biases = tl.load(bias + rows, mask=row_mask, other=0.0).to(tl.float32)
    if before is not None:
        residual = tl.load(before + rows, mask=row_mask, other=0.0).to(tl.float32)
    # Without the barrier the compiler issues the loads one after another to save registers, which adds their latencies.
    tl.debug_barrier()
    if gain is not None:
        centered = tl.where(column_mask, vector - tl.sum(vector) / INPUTS, 0.0)
        vector = centered / tl.sqrt(tl.sum(centered * centered) / INPUTS + epsilon) * gains + shifts
    sums = tl.sum(weights.to(tl.float32) * vector[None, :], axis=1)
    dtype = out.dtype.element_ty
    if bias is not None:
        sums += biases
    if ACTIVATION != "none":
        sums = sums.to(dtype).to(tl.float32)
        if ACTIVATION == "relu":
            sums = tl.where(sums < 0, 0.0, sums)  # NaN stays NaN
        elif ACTIVATION == "gelu":
            sums = 0.5 * sums * (1 + tl.erf(sums * HALF_ROOT))
        else:
            sums = sums / (1 + tl.exp(-sums * (1 + sums * sums * GELU_CUBIC) * GELU_SLOPE))
    if before is not None:
        sums = sums.to(dtype).to(tl.float32) + residual
    tl.store(out + rows, sums.to(dtype), mask=row_mask)


@triton.jit
def attend(
    projected,
    keys,
    values,
    positions,
    out,
    scale,
    stride,
    span,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One head: write its key and value to the cache, and attend from its query to all positions up to that one.

    Each of BLOCK lanes computes an online softmax over its own positions; the lanes are combined once, at the end.
    """
    head = tl.program_id(0)
    part = tl.arange(0, WIDTH)
    position = tl.load(positions).to(tl.int32)
    query = tl.load(projected + head * WIDTH + part).to(tl.float32) * scale
    key = tl.load(projected + (HEADS + head) * WIDTH + part)
    value = tl.load(projected + (2 * HEADS + head) * WIDTH + part)
    keys += head.to(tl.int64) * stride
    values += head.to(tl.int64) * stride
    tl.store(keys + position * WIDTH + part, key)
    tl.store(values + position * WIDTH + part, value)
    own = tl.sum(query * key.to(tl.float32))
    top = tl.zeros([BLOCK], tl.float32) + own
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, WIDTH], tl.float32)
    length = tl.minimum(position, span)  # the key and value above are not loaded again
    for start in range(0, length, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        mask = rows < length
        offsets = rows[:, None] * WIDTH + part[None, :]
        block_keys = tl.load(keys + offsets, mask=mask[:, None], other=0.0)
        block_values = tl.load(values + offsets, mask=mask[:, None], other=0.0)
        # As above. Reloading the query after the barrier keeps the sums, which need it, after the barrier too.
        tl.debug_barrier()
        query = tl.load(projected + head * WIDTH + part).to(tl.float32) * scale
        scores = tl.where(mask, tl.sum(block_keys.to(tl.float32) * query[None, :], axis=1), -float("inf"))
        new_top = tl.maximum(top, scores)
        decay, weights = tl.exp(top - new_top), tl.exp(scores - new_top)
        total = total * decay + weights
        mixed = mixed * decay[:, None] + weights[:, None] * block_values.to(tl.float32)
        top = new_top
    peak = tl.max(top, axis=0)
    scales, own = tl.exp(top - peak), tl.exp(own - peak)
    result = tl.sum(mixed * scales[:, None], axis=0) + own * value.to(tl.float32)
    result = result / (tl.sum(total * scales) + own)
    tl.store(out + head * WIDTH + part, result.to(out.dtype.element_ty))


@triton.jit
def embed(tokens, positions, token_table, position_table, out, last, offset, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Add the vector of a token and that of its position, which is clamped to the last one."""
    columns = tl.arange(0, BLOCK)
    mask = columns < WIDTH
    token = tl.load(tokens)
    position = tl.minimum(tl.load(positions), last) + offset
    token_vector = tl.load(token_table + token * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    position_vector = tl.load(position_table + position * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + columns, (token_vector + position_vector).to(out.dtype.element_ty), mask=mask)


@triton.jit
def add_layer_norm(x, update, weight, bias, result, width, eps, BLOCK: tl.constexpr):
    """One row: result = (s - mean) / sqrt(variance + eps) * weight + bias, with s = x + update."""
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    valid = column < width
    s = tl.load(x + row + column, valid, 0.0).to(tl.float32) + tl.load(update + row + column, valid, 0.0).to(tl.float32)
    centered = tl.where(valid, s - tl.sum(s, 0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(centered * centered, 0) / width + eps)
    w, b = tl.load(weight + column, valid, 0.0).to(tl.float32), tl.load(bias + column, valid, 0.0).to(tl.float32)
    tl.store(result + row + column, (centered * scale * w + b).to(result.dtype.element_ty), valid)


@triton.jit
def packed_attention(
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


@triton.jit
def mean_pool(x, starts, result, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
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
