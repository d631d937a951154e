"""Layers joined: how much of each input token ends up in each output token, if maps are the roads between them.

Knows arrays. Knows no model. Both measures of Abnar and Zuidema (2020), "Quantifying Attention Flow in Transformers":
a layer is the mean of its heads, half of it the token itself for the residual, rows of sum 1. Rollout multiplies the
layers; flow takes weights for capacities, and is the most that can go from an output token to an input token.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_FLOW_TOKENS", "flow", "residual_attention", "rollout"]

Doubles = NDArray[np.float64]
MAX_FLOW_TOKENS = 24  # flow is a problem for each pair of tokens, whose size grows with their square again
NOTHING = 1e-9  # a path this narrow is none


def residual_attention(weights: NDArray[np.floating]) -> Doubles:
    """Maps (L, H, T, T) to (L, T, T): 0.5 A + 0.5 I with rows of sum 1, A the mean of the heads."""
    mean = np.asarray(weights, dtype=np.float64).mean(axis=1)
    if mean.ndim != 3 or mean.shape[1] != mean.shape[2]:
        raise ValueError(f"expected maps (L, H, T, T) of tokens that look at each other, got {weights.shape}")
    half = 0.5 * mean + 0.5 * np.eye(mean.shape[-1])
    result: Doubles = half / half.sum(-1, keepdims=True)
    return result


def rollout(weights: NDArray[np.floating]) -> Doubles:
    """(L, T, T): after each layer, the share of each input token (column) in each token (row)."""
    layers = residual_attention(weights)
    for number in range(1, len(layers)):
        layers[number] = layers[number] @ layers[number - 1]
    return layers


def flow(weights: NDArray[np.floating]) -> Doubles:
    """(T, T): the most that flows from each token of the last layer (row) to each input token (column)."""
    layers = residual_attention(weights)
    return np.stack([_most(layers, source) for source in range(layers.shape[1])])


def _most(layers: Doubles, source: int) -> Doubles:
    """The maximum flow (T,) from one output token to every input token, a problem each, all solved side by side.

    Each round finds a widest path of every problem that is left, and fills it. First come the paths that only go down,
    which are quickly found. Then a path may go back up along what flows already: what it takes back there is what
    makes the flow the greatest.
    """
    tokens = layers.shape[1]
    total = np.zeros(tokens)
    down = np.broadcast_to(layers, (tokens, *layers.shape)).copy()  # of each problem, what still fits: (P, L, T, T)
    up = np.zeros_like(down)  # and what flows already
    left = np.arange(tokens)  # problems, each named by its sink
    while len(left):
        width = _straight(down[left], source)
        found = width[np.arange(len(left)), 0, left]
        left, width, found = (part[found > NOTHING] for part in (left, width, found))
        total[left] += found
        _fill_straight(down, up, width, found, left)
    left = np.arange(tokens)
    while len(left):
        width, parent = _widest(down[left], up[left], source)
        found = width[np.arange(len(left)), 0, left]
        left, parent, found = (part[found > NOTHING] for part in (left, parent, found))
        total[left] += found
        _fill(down, up, parent, found, left)
    return total


def _straight(down: Doubles, source: int) -> Doubles:
    """The widest path to each node that only goes down, (P, L + 1, T)."""
    problems, depth, tokens, _ = down.shape
    width = np.zeros((problems, depth + 1, tokens))
    width[:, depth, source] = np.inf
    for level in range(depth, 0, -1):
        width[:, level - 1] = np.minimum(width[:, level, :, None], down[:, level - 1]).max(axis=1)
    return width


def _fill_straight(down: Doubles, up: Doubles, width: Doubles, amount: Doubles, sinks: NDArray[np.int64]) -> None:
    """Send `amount` along a widest path of each problem, found again from its sink upwards."""
    node = sinks
    for layer in range(down.shape[1]):
        before = np.minimum(width[:, layer + 1], down[sinks, layer, :, node]).argmax(axis=-1)
        down[sinks, layer, before, node] -= amount
        up[sinks, layer, before, node] += amount
        node = before


def _widest(down: Doubles, up: Doubles, source: int) -> tuple[Doubles, NDArray[np.int64]]:
    """The widest path to each node, (P, L + 1, T), and the node before: its token, plus T where that lies below.

    Level L is the last layer's tokens, level 0 the input. A node is only ever changed by a wider path, and what comes
    from it is never wider than itself, so that no node comes before itself.
    """
    problems, depth, tokens, _ = down.shape
    width = np.zeros((problems, depth + 1, tokens))
    width[:, depth, source] = np.inf
    parent = np.full((problems, depth + 1, tokens), -1)

    def improve(level: int, paths: Doubles, offset: int) -> bool:
        """`paths` (P, from, to)."""
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
    """Send `amount` along each problem's path, from its sink back to the source."""
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
