"""The Triton kernels of `dropout_attention`: softmax(scale q k^T) with dropout times v, and its gradients.

Import this module only where the kernels are used, since Triton may be missing. Names in capitals are compile-time
constants. Matrices are read as they lie in memory: `qkv` is (N, 3, H, D) for N tokens, `out` and `gradient` (N, H, D),
`lse` and `delta` (H, N), `factors` (2, H, N). Scores, sums and gradients are accumulated in float32.

With P = softmax(scale Q K^T) and a dropout mask Z, whose elements are 0 or 1 / (1 - p), the output is O = (P * Z) V,
and for its gradient dO (Dao et al. 2022, FlashAttention, appendix B.4):

    dV = (P * Z)^T dO        delta = rowsum(dO * O)        dS = P * (Z * (dO V^T) - delta)
    dQ = scale dS K          dK = scale dS^T Q

P is recomputed from the log-sum-exp of each row. Exponentials are powers of 2, so `scale2` is scale * log2(e), and the
log-sum-exp is in base 2.
"""

# mypy: ignore-errors
# Triton compiles the kernels; Python's types do not describe their values.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sequence(starts, length, index):
    """Return the first token and the number of tokens of a sequence."""
    first = index * length if starts is None else tl.load(starts + index)
    if starts is not None:
        length = tl.load(starts + index + 1) - first
    return first.to(tl.int64), length


@triton.jit
def load_rows(matrix, rows, length, STRIDE: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr):
    """Load rows of a matrix; zeros after the end."""
    addresses = matrix + rows[:, None] * STRIDE + tl.arange(0, WIDTH)[None, :]
    return tl.load(addresses) if EVEN else tl.load(addresses, mask=rows[:, None] < length, other=0.0)


@triton.jit
def store_rows(matrix, rows, length, values, STRIDE: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr):
    addresses = matrix + rows[:, None] * STRIDE + tl.arange(0, WIDTH)[None, :]
    values = values.to(matrix.dtype.element_ty)
    if EVEN:
        tl.store(addresses, values)
    else:
        tl.store(addresses, values, mask=rows[:, None] < length)


@triton.jit
def load_vector(vector, rows, length, EVEN: tl.constexpr):
    return tl.load(vector + rows) if EVEN else tl.load(vector + rows, mask=rows < length, other=0.0)


@triton.jit
def dropout_mask(row_factors, column_factors, THRESHOLD: tl.constexpr, RESCALE: tl.constexpr):
    """Return Z: 0 if the product of two random factors, modulo 2^32, is low, else RESCALE, 1 / (1 - p)."""
    return tl.where(row_factors * column_factors >= THRESHOLD, RESCALE, 0.0)


@triton.jit
def mask_scores(scores, queries, keys, length, CAUSAL: tl.constexpr, EVEN: tl.constexpr):
    """Set the scores of keys after the end and, if causal, after the query, to -inf. Queries or keys are a column."""
    if not EVEN:
        scores = tl.where(keys < length, scores, float("-inf"))
    if CAUSAL:
        scores = tl.where(keys <= queries, scores, float("-inf"))
    return scores


@triton.jit
def forward(
    qkv,
    out,
    lse,
    factors,
    starts,
    length,
    total,
    scale2,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr,
    THRESHOLD: tl.constexpr,
    RESCALE: tl.constexpr,
    EVEN: tl.constexpr,
    SINGLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute the output and the log-sum-exp of ROWS queries of one head; SINGLE if all keys fit into one block."""
    STRIDE: tl.constexpr = 3 * HEADS * WIDTH
    blocks = tl.cdiv(length, ROWS)
    pair, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    first, length = sequence(starts, length, pair // HEADS)
    head = pair % HEADS
    if block * ROWS >= length:
        return
    qkv += first * STRIDE + head * WIDTH
    rows = block * ROWS + tl.arange(0, ROWS)
    query = load_rows(qkv, rows, length, STRIDE, WIDTH, EVEN)
    factors += head * total + first
    row_factors = load_vector(factors, rows, length, EVEN)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    norm = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    end = length
    if CAUSAL:
        end = tl.minimum(length, (block + 1) * ROWS)
    for start in range(0, COLUMNS if SINGLE else end, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        key = load_rows(qkv + HEADS * WIDTH, columns, length, STRIDE, WIDTH, EVEN)
        value = load_rows(qkv + 2 * HEADS * WIDTH, columns, length, STRIDE, WIDTH, EVEN)
        scores = mask_scores(tl.dot(query, tl.trans(key)), rows[:, None], columns[None, :], length, CAUSAL, EVEN)
        higher = tl.maximum(highest, tl.max(scores, 1) * scale2)
        weights = tl.exp2(scores * scale2 - higher[:, None])
        if SINGLE:
            norm = tl.sum(weights, 1)
        else:
            decay = tl.exp2(highest - higher)
            norm = norm * decay + tl.sum(weights, 1)
            mixed *= decay[:, None]
        column_factors = load_vector(factors + HEADS * total, columns, length, EVEN)
        weights *= dropout_mask(row_factors[:, None], column_factors[None, :], THRESHOLD, RESCALE)
        mixed = tl.dot(weights.to(value.dtype), value, mixed)
        highest = higher
    mixed *= (1 / norm)[:, None]
    store_rows(out + (first * HEADS + head) * WIDTH, rows, length, mixed, HEADS * WIDTH, WIDTH, EVEN)
    tl.store(lse + head * total + first + rows, highest + tl.log2(norm), mask=rows < length)


@triton.jit
def row_sums(
    out, gradient, delta, total, HEADS: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr
):
    """delta = rowsum(dO * O) for ROWS tokens of one head."""
    head = tl.program_id(0) % HEADS
    first = (tl.program_id(0) // HEADS).to(tl.int64) * ROWS
    rows = tl.arange(0, ROWS)
    offset = (first * HEADS + head) * WIDTH
    a = load_rows(out + offset, rows, total - first, HEADS * WIDTH, WIDTH, EVEN).to(tl.float32)
    b = load_rows(gradient + offset, rows, total - first, HEADS * WIDTH, WIDTH, EVEN).to(tl.float32)
    tl.store(delta + head * total + first + rows, tl.sum(a * b, 1), mask=first + rows < total)


@triton.jit
def add_query_gradient(
    update,
    row,
    start,
    partial,
    result,
    length,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Add a block of keys to dQ: the first stores it in `partial`, the next ones add, the last writes `result`."""
    rows, columns = (row + tl.arange(0, ROWS))[:, None], tl.arange(0, WIDTH)[None, :]
    end = length
    if CAUSAL:
        end = tl.minimum(length, row + ROWS)
    inside = rows < length
    update += tl.load(partial + rows * WIDTH + columns, mask=inside & (start > 0), other=0.0)
    tl.store(partial + rows * WIDTH + columns, update, mask=inside & (start + COLUMNS < end))
    update = update.to(result.dtype.element_ty)
    tl.store(result + rows * STRIDE + columns, update, mask=inside & (start + COLUMNS >= end))


@triton.jit
def backward(
    qkv,
    out,
    gradient,
    lse,
    delta,
    factors,
    starts,
    partial,
    result,
    length,
    total,
    scale,
    scale2,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr,
    THRESHOLD: tl.constexpr,
    RESCALE: tl.constexpr,
    EVEN: tl.constexpr,
    SINGLE: tl.constexpr,
    QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute dK and dV of COLUMNS keys. With QUERIES, one program computes dK, dV and dQ of all keys of a head.

    A single program adds up dQ without atomic operations, so that gradients are the same in every run. Without `delta`
    it is computed here, which is faster if all keys fit into one block (SINGLE). Maps are transposed, (keys, queries).
    """
    STRIDE: tl.constexpr = 3 * HEADS * WIDTH
    pair, begin = tl.program_id(0), 0
    if not QUERIES:
        blocks = tl.cdiv(length, COLUMNS)
        pair, begin = pair // blocks, pair % blocks * COLUMNS
    first, length = sequence(starts, length, pair // HEADS)
    if begin >= length:
        return
    head = pair % HEADS
    qkv += first * STRIDE + head * WIDTH
    result += first * STRIDE + head * WIDTH
    out += (first * HEADS + head) * WIDTH
    gradient += (first * HEADS + head) * WIDTH
    lse += head * total + first
    if delta is not None:
        delta += head * total + first
    if partial is not None:
        partial += (head * total + first) * WIDTH
    factors += head * total + first
    for start in range(begin, COLUMNS if SINGLE else (length if QUERIES else begin + COLUMNS), COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        key = load_rows(qkv + HEADS * WIDTH, columns, length, STRIDE, WIDTH, EVEN)
        value = load_rows(qkv + 2 * HEADS * WIDTH, columns, length, STRIDE, WIDTH, EVEN)
        column_factors = load_vector(factors + HEADS * total, columns, length, EVEN)
        key_gradient = tl.zeros([COLUMNS, WIDTH], tl.float32)
        value_gradient = tl.zeros([COLUMNS, WIDTH], tl.float32)
        for row in range(start // ROWS * ROWS if CAUSAL else 0, COLUMNS if SINGLE and EVEN else length, ROWS):
            rows = row + tl.arange(0, ROWS)
            query = load_rows(qkv, rows, length, STRIDE, WIDTH, EVEN)
            above = load_rows(gradient, rows, length, HEADS * WIDTH, WIDTH, EVEN)
            norm = load_vector(lse, rows, length, EVEN)
            scores = tl.dot(key, tl.trans(query))
            slopes = tl.dot(value, tl.trans(above))  # (dO V^T)^T
            if delta is None:
                mixed = load_rows(out, rows, length, HEADS * WIDTH, WIDTH, EVEN)
                sums = tl.sum(above.to(tl.float32) * mixed.to(tl.float32), 1)
            else:
                sums = load_vector(delta, rows, length, EVEN)
            scores = mask_scores(scores, rows[None, :], columns[:, None], length, CAUSAL, EVEN)
            weights = tl.exp2(scores * scale2 - norm[None, :])
            row_factors = load_vector(factors, rows, length, EVEN)
            mask = dropout_mask(row_factors[None, :], column_factors[:, None], THRESHOLD, RESCALE)
            value_gradient = tl.dot((weights * mask).to(key.dtype), above, value_gradient)
            slopes = (weights * (mask * slopes - sums[None, :])).to(key.dtype)  # dS^T
            key_gradient = tl.dot(slopes, query, key_gradient)
            if QUERIES:
                update = tl.dot(tl.trans(slopes), key)
                if SINGLE:
                    store_rows(result, rows, length, update * scale, STRIDE, WIDTH, EVEN)
                else:
                    update *= scale
                    add_query_gradient(
                        update, row, start, partial, result, length, STRIDE, WIDTH, CAUSAL, ROWS, COLUMNS
                    )
        keys = result + HEADS * WIDTH
        store_rows(keys, columns, length, key_gradient * scale, STRIDE, WIDTH, EVEN)
        store_rows(keys + HEADS * WIDTH, columns, length, value_gradient, STRIDE, WIDTH, EVEN)
        if QUERIES and not SINGLE:
            tl.debug_barrier()  # the next block may read `partial` in other threads than those that wrote it


@triton.jit
def query_backward(
    qkv,
    gradient,
    lse,
    delta,
    factors,
    starts,
    result,
    length,
    total,
    scale,
    scale2,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr,
    THRESHOLD: tl.constexpr,
    RESCALE: tl.constexpr,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute dQ of ROWS queries, for `backward` without QUERIES."""
    STRIDE: tl.constexpr = 3 * HEADS * WIDTH
    blocks = tl.cdiv(length, ROWS)
    pair, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    first, length = sequence(starts, length, pair // HEADS)
    if block * ROWS >= length:
        return
    head = pair % HEADS
    qkv += first * STRIDE + head * WIDTH
    rows = block * ROWS + tl.arange(0, ROWS)
    query = load_rows(qkv, rows, length, STRIDE, WIDTH, EVEN)
    above = load_rows(gradient + (first * HEADS + head) * WIDTH, rows, length, HEADS * WIDTH, WIDTH, EVEN)
    norm = load_vector(lse + head * total + first, rows, length, EVEN)
    sums = load_vector(delta + head * total + first, rows, length, EVEN)
    factors += head * total + first
    row_factors = load_vector(factors, rows, length, EVEN)
    update = tl.zeros([ROWS, WIDTH], tl.float32)
    end = length
    if CAUSAL:
        end = tl.minimum(length, (block + 1) * ROWS)
    for start in range(0, end, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        key = load_rows(qkv + HEADS * WIDTH, columns, length, STRIDE, WIDTH, EVEN)
        value = load_rows(qkv + 2 * HEADS * WIDTH, columns, length, STRIDE, WIDTH, EVEN)
        scores = tl.dot(query, tl.trans(key))
        slopes = tl.dot(above, tl.trans(value))  # dO V^T
        scores = mask_scores(scores, rows[:, None], columns[None, :], length, CAUSAL, EVEN)
        weights = tl.exp2(scores * scale2 - norm[:, None])
        column_factors = load_vector(factors + HEADS * total, columns, length, EVEN)
        mask = dropout_mask(row_factors[:, None], column_factors[None, :], THRESHOLD, RESCALE)
        slopes = (weights * (mask * slopes - sums[:, None])).to(key.dtype)  # dS
        update = tl.dot(slopes, key, update)
    offset = first * STRIDE + head * WIDTH
    store_rows(result + offset, rows, length, update * scale, STRIDE, WIDTH, EVEN)
