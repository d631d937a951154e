"""Attention rollout and attention flow: how much of each input token reaches each output token through all layers.

Both are from Abnar and Zuidema (2020), "Quantifying Attention Flow in Transformers". A layer is the mean of its heads,
averaged with the identity for the residual connection. Rollout multiplies the layers; flow treats the weights as
capacities and is the maximum flow from an output token to an input token.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
MAX_FLOW_TOKENS = 24  # one maximum-flow problem for each pair of tokens
MIN_CAPACITY = 1e-9  # narrower paths do not count


def residual_attention(weights: NDArray[np.floating]) -> Doubles:
    """Maps (L, H, T, T) to (L, T, T): 0.5 A + 0.5 I with rows of sum 1, A the mean of the heads."""
    mean = np.asarray(weights, dtype=np.float64).mean(axis=1)
    if mean.ndim != 3 or mean.shape[1] != mean.shape[2]:
        raise ValueError(f"expected self-attention maps (L, H, T, T), got {weights.shape}")
    half = 0.5 * mean + 0.5 * np.eye(mean.shape[-1])
    result: Doubles = half / half.sum(-1, keepdims=True)
    return result


def rollout(weights: NDArray[np.floating]) -> Doubles:
    """(L, T, T): after each layer, the contribution of each input token (column) to each token (row)."""
    layers = residual_attention(weights)
    for index in range(1, len(layers)):
        layers[index] = layers[index] @ layers[index - 1]
    return layers


def flow(weights: NDArray[np.floating]) -> Doubles:
    """(T, T): the maximum flow from each token of the last layer (row) to each input token (column)."""
    layers = residual_attention(weights)
    return np.stack([_max_flow(layers, source) for source in range(layers.shape[1])])


def _max_flow(layers: Doubles, source: int) -> Doubles:
    """The maximum flow (T,) from one output token to every input token: one problem each, solved side by side.

    Each round finds a widest augmenting path of every open problem and fills it. Paths that only go down, which are
    found quickly, come first; then paths may also go back up along existing flow (Ford and Fulkerson).
    """
    tokens = layers.shape[1]
    total = np.zeros(tokens)
    down = np.broadcast_to(layers, (tokens, *layers.shape)).copy()  # residual capacity of each problem: (P, L, T, T)
    up = np.zeros_like(down)  # existing flow
    open_ = np.arange(tokens)  # open problems, by their sinks
    while len(open_):
        width = _widest_downward(down[open_], source)
        amount = width[np.arange(len(open_)), 0, open_]
        open_, width, amount = (part[amount > MIN_CAPACITY] for part in (open_, width, amount))
        total[open_] += amount
        _fill_downward(down, up, width, amount, open_)
    open_ = np.arange(tokens)
    while len(open_):
        width, parent = _widest(down[open_], up[open_], source)
        amount = width[np.arange(len(open_)), 0, open_]
        open_, parent, amount = (part[amount > MIN_CAPACITY] for part in (open_, parent, amount))
        total[open_] += amount
        _fill(down, up, parent, amount, open_)
    return total


def _widest_downward(down: Doubles, source: int) -> Doubles:
    """The width of the widest path to each node that only goes down, (P, L + 1, T)."""
    problems, depth, tokens, _ = down.shape
    width = np.zeros((problems, depth + 1, tokens))
    width[:, depth, source] = np.inf
    for level in range(depth, 0, -1):
        width[:, level - 1] = np.minimum(width[:, level, :, None], down[:, level - 1]).max(axis=1)
    return width


def _fill_downward(down: Doubles, up: Doubles, width: Doubles, amount: Doubles, sinks: NDArray[np.int64]) -> None:
    """Send `amount` along a widest path of each problem, traced from its sink upwards."""
    node = sinks
    for layer in range(down.shape[1]):
        before = np.minimum(width[:, layer + 1], down[sinks, layer, :, node]).argmax(axis=-1)
        down[sinks, layer, before, node] -= amount
        up[sinks, layer, before, node] += amount
        node = before


def _widest(down: Doubles, up: Doubles, source: int) -> tuple[Doubles, NDArray[np.int64]]:
    """The width of the widest path to each node, (P, L + 1, T), and its parent: a token, plus T if it lies below.

    Level L is the last layer's tokens, level 0 the input. A node changes only for a wider path, and a path through it
    is never wider than the node, so no node is its own ancestor.
    """
    problems, depth, tokens, _ = down.shape
    width = np.zeros((problems, depth + 1, tokens))
    width[:, depth, source] = np.inf
    parent = np.full((problems, depth + 1, tokens), -1)

    def improve(level: int, paths: Doubles, offset: int) -> bool:
        """Take wider `paths` (P, from, to) to a level."""
        before = paths.argmax(axis=1)
        best = np.take_along_axis(paths, before[:, None], axis=1)[:, 0]
        better = best > width[:, level]
        width[:, level][better] = best[better]
        parent[:, level][better] = before[better] + offset
        return bool(better.any())

    changed = True
    while changed:
        for level in range(depth, 0, -1):
            improve(level - 1, np.minimum(width[:, level, :, None], down[:, level - 1]), 0)
        changed = False
        for level in range(1, depth + 1):
            back = up[:, level - 1].transpose(0, 2, 1)
            changed |= improve(level, np.minimum(width[:, level - 1, :, None], back), tokens)
    return width, parent


def _fill(down: Doubles, up: Doubles, parent: NDArray[np.int64], amount: Doubles, sinks: NDArray[np.int64]) -> None:
    """Send `amount` along the path of each problem, from its sink back to the source."""
    tokens = down.shape[-1]
    here = np.arange(len(sinks))
    level, node = np.zeros(len(sinks), dtype=np.int64), sinks
    while len(here):
        before = parent[here, level, node]
        here, level, node, before = (part[before >= 0] for part in (here, level, node, before))
        below = before >= tokens
        token = np.where(below, before - tokens, before)
        layer = np.where(below, level - 1, level)  # between levels l and l - 1 lies layer l - 1
        above, under = np.where(below, node, token), np.where(below, token, node)
        sent = np.where(below, -amount[here], amount[here])
        down[sinks[here], layer, above, under] -= sent
        up[sinks[here], layer, above, under] += sent
        level, node = np.where(below, level - 1, level + 1), token
