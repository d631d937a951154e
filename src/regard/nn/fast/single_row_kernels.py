"""The Triton kernels of `single_row`: norm with matrix-vector product, attention of one query, token embedding.

Import this only where the kernels are used, since Triton may be missing. Names in capitals are compile-time constants.
Sums are kept in float32 and rounded where a module would return them.
"""

# mypy: ignore-errors
# What stands in kernels is compiled by Triton, and Python's types do not describe it.

from __future__ import annotations

import math

import triton
import triton.language as tl

__all__ = ["embed", "look", "product"]

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
    """out = before + activation(weight norm(x) + bias) for ROWS outputs; no norm where `gain` is None, and so on."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    there, inside = rows < outputs, columns < INPUTS
    addresses = weight + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    weights = tl.load(addresses, mask=there[:, None] & inside[None, :], other=0.0)
    vector = tl.load(x + columns, mask=inside, other=0.0).to(tl.float32)
    if gain is not None:
        gains = tl.load(gain + columns, mask=inside, other=0.0).to(tl.float32)
        shifts = tl.load(shift + columns, mask=inside, other=0.0).to(tl.float32)
    if bias is not None:
        biases = tl.load(bias + rows, mask=there, other=0.0).to(tl.float32)
    if before is not None:
        carried = tl.load(before + rows, mask=there, other=0.0).to(tl.float32)
    # Without it the compiler saves registers and asks for the numbers one after the other; each is long on its way.
    tl.debug_barrier()
    if gain is not None:
        away = tl.where(inside, vector - tl.sum(vector) / INPUTS, 0.0)
        vector = away / tl.sqrt(tl.sum(away * away) / INPUTS + epsilon) * gains + shifts
    sums = tl.sum(weights.to(tl.float32) * vector[None, :], axis=1)
    kind = out.dtype.element_ty
    if bias is not None:
        sums += biases
    if ACTIVATION != "none":
        sums = sums.to(kind).to(tl.float32)
        if ACTIVATION == "relu":
            sums = tl.where(sums < 0, 0.0, sums)  # NaN stays NaN
        elif ACTIVATION == "gelu":
            sums = 0.5 * sums * (1 + tl.erf(sums * HALF_ROOT))
        else:
            sums = sums / (1 + tl.exp(-sums * (1 + sums * sums * GELU_CUBIC) * GELU_SLOPE))
    if before is not None:
        sums = sums.to(kind).to(tl.float32) + carried
    tl.store(out + rows, sums.to(kind), mask=there)


@triton.jit
def look(
    projected,
    keys,
    values,
    places,
    out,
    scale,
    stride,
    span,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One head: its pair goes to its place in the store, and its query looks at all places up to that one.

    Each of BLOCK lanes keeps a softmax of its own over the places it meets; they are put together once, at the end.
    """
    head = tl.program_id(0)
    part = tl.arange(0, WIDTH)
    place = tl.load(places).to(tl.int32)
    query = tl.load(projected + head * WIDTH + part).to(tl.float32) * scale
    key = tl.load(projected + (HEADS + head) * WIDTH + part)
    value = tl.load(projected + (2 * HEADS + head) * WIDTH + part)
    keys += head.to(tl.int64) * stride
    values += head.to(tl.int64) * stride
    tl.store(keys + place * WIDTH + part, key)
    tl.store(values + place * WIDTH + part, value)
    own = tl.sum(query * key.to(tl.float32))
    top = tl.zeros([BLOCK], tl.float32) + own
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, WIDTH], tl.float32)
    seen = tl.minimum(place, span)  # the pair above is not read again
    for start in range(0, seen, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        there = rows < seen
        offsets = rows[:, None] * WIDTH + part[None, :]
        some_keys = tl.load(keys + offsets, mask=there[:, None], other=0.0)
        some_values = tl.load(values + offsets, mask=there[:, None], other=0.0)
        # As above; and what is read behind the barrier keeps the sums, which need it, behind the barrier too.
        tl.debug_barrier()
        query = tl.load(projected + head * WIDTH + part).to(tl.float32) * scale
        scores = tl.where(there, tl.sum(some_keys.to(tl.float32) * query[None, :], axis=1), -float("inf"))
        higher = tl.maximum(top, scores)
        shrunk, raised = tl.exp(top - higher), tl.exp(scores - higher)
        total = total * shrunk + raised
        mixed = mixed * shrunk[:, None] + raised[:, None] * some_values.to(tl.float32)
        top = higher
    peak = tl.max(top, axis=0)
    share, own = tl.exp(top - peak), tl.exp(own - peak)
    summed = tl.sum(mixed * share[:, None], axis=0) + own * value.to(tl.float32)
    summed = summed / (tl.sum(total * share) + own)
    tl.store(out + head * WIDTH + part, summed.to(out.dtype.element_ty))


@triton.jit
def embed(tokens, places, words, positions, out, last, offset, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The vector of a token and that of its place, added. No place is behind the last one."""
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    token = tl.load(tokens)
    place = tl.minimum(tl.load(places), last) + offset
    word = tl.load(words + token * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    where = tl.load(positions + place * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + columns, (word + where).to(out.dtype.element_ty), mask=inside)
