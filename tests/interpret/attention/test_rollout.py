"""Attention rollout and flow: a hand-computed case, networkx's maximum flow, and properties of all maps."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard.interpret.attention.rollout as module
from regard.interpret.attention.rollout import flow, residual_attention, rollout

Array = np.ndarray[Any, Any]

# Two layers with one head, two tokens. In the first, token 0 attends to 1 and 1 to itself; in the second, both to 0.
HAND = np.array([[[[0.0, 1.0], [0.0, 1.0]]], [[[1.0, 0.0], [1.0, 0.0]]]])


def maps(seed: int, layers: int, heads: int, tokens: int, sharpness: float) -> Array:
    scores = sharpness * np.random.default_rng(seed).normal(size=(layers, heads, tokens, tokens))
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = powers / powers.sum(-1, keepdims=True)
    return result


def reference(weights: Array) -> Array:
    """The maximum flow of the same graph, one pair of tokens at a time."""
    layers = residual_attention(weights)
    depth, tokens, _ = layers.shape
    graph = networkx.DiGraph()
    graph.add_nodes_from((level, token) for level in range(depth + 1) for token in range(tokens))
    for level, above, below in zip(*np.nonzero(layers), strict=True):
        graph.add_edge((level + 1, above), (level, below), capacity=layers[level, above, below])
    return np.array(
        [[networkx.maximum_flow_value(graph, (depth, i), (0, j)) for j in range(tokens)] for i in range(tokens)]
    )


def test_hand_computed_case() -> None:
    np.testing.assert_allclose(residual_attention(HAND), [[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.5, 0.5]]])
    # Second layer times first: row 0 stays (0.5, 0.5); row 1 is half of each, (0.25, 0.75).
    np.testing.assert_allclose(rollout(HAND), [[[0.5, 0.5], [0.0, 1.0]], [[0.5, 0.5], [0.25, 0.75]]])
    # From 0, one path leads to 0, and from there 0.5 to each input. From 1, half goes to 0, whose 0.5 leads to input 0;
    # input 1 receives that 0.5 and another 0.5 through token 1.
    np.testing.assert_allclose(flow(HAND), [[0.5, 0.5], [0.5, 1.0]])


def test_heads_are_averaged() -> None:
    one, two = maps(0, 2, 1, 3, 2.0), maps(1, 2, 1, 3, 2.0)
    both = np.concatenate([one, two], axis=1)
    np.testing.assert_allclose(residual_attention(both), (residual_attention(one) + residual_attention(two)) / 2)


def test_zero_attention_leaves_the_residual() -> None:
    zeros = np.zeros((1, 1, 2, 2))
    np.testing.assert_allclose(residual_attention(zeros)[0], np.eye(2))


@given(
    seed=st.integers(0, 10_000),
    layers=st.integers(1, 4),
    heads=st.integers(1, 2),
    tokens=st.integers(1, 5),
    sharpness=st.sampled_from([0.5, 3.0, 12.0]),
)
def test_flow_is_the_maximum_flow(seed: int, layers: int, heads: int, tokens: int, sharpness: float) -> None:
    weights = maps(seed, layers, heads, tokens, sharpness)
    np.testing.assert_allclose(flow(weights), reference(weights), atol=1e-6)


def test_flow_is_redirected_along_existing_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The widest path blocks others, so that the maximum requires paths along residual edges."""
    weights = maps(225, 3, 1, 4, 12.0)
    expected = reference(weights)
    np.testing.assert_allclose(flow(weights), expected, atol=1e-6)
    monkeypatch.setattr(module, "_widest", lambda down, up, source: (np.zeros((*down.shape[:2], 4)), down))
    assert (expected - flow(weights)).max() > 0.4


@given(seed=st.integers(0, 1000), tokens=st.integers(1, 6))
def test_rollout_rows_sum_to_one_and_flow_is_bounded(seed: int, tokens: int) -> None:
    weights = maps(seed, 3, 2, tokens, 4.0)
    np.testing.assert_allclose(rollout(weights).sum(-1), 1.0)
    found = flow(weights)
    assert (found <= 1 + 1e-9).all()
    assert (np.diag(found) >= 0.5 - 1e-9).all()  # the residual half of each layer


def test_cross_attention_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected self-attention maps"):
        rollout(np.ones((2, 1, 3, 4)) / 4)
