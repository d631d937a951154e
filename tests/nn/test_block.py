"""One layer against its formulas: norms, feed-forward network, residuals, and the order of sublayers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.nn.block import ACTIVATIONS, Block, FeedForward, LayerConfig, Residual
from regard.nn.masks import Context, Packed, Padded
from tests.nn.stacks import stacked

LAYER = LayerConfig(width=8, heads=2, ffn=12, eps=1e-6)
Randomise = Callable[..., Any]


def array(x: Tensor) -> np.ndarray[Any, Any]:
    return x.detach().cpu().double().numpy()


def test_layer_norm_follows_the_formula(device: torch.device, randomized: Randomise) -> None:
    """Per position: subtract the mean, divide by the standard deviation, then apply a gain and a bias per dimension."""
    norm = randomized(LayerConfig(width=8, heads=2, ffn=12, eps=1e-5).new_norm()).to(device)
    x = torch.randn(3, 5, 8, device=device) * 4 + 2
    expected = np.empty((3, 5, 8))
    for b in range(3):
        for t in range(5):
            row = array(x[b, t])
            deviation = math.sqrt(((row - row.mean()) ** 2).mean() + 1e-5)
            expected[b, t] = (row - row.mean()) / deviation * array(norm.weight) + array(norm.bias)
    np.testing.assert_allclose(array(norm.train()(x)), expected, atol=1e-5)
    assert torch.equal(norm.train()(x), norm.eval()(x))
    torch.testing.assert_close(norm(x[:1]), norm(x)[:1], atol=1e-6, rtol=0)  # statistics are per example


def test_root_mean_square_norm(device: torch.device, randomized: Randomise) -> None:
    norm = randomized(LayerConfig(width=8, heads=2, ffn=12, norm="rms", eps=1e-5).new_norm()).to(device)
    x = torch.randn(3, 8, device=device)
    rows = array(x)
    expected = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5) * array(norm.weight)
    np.testing.assert_allclose(array(norm(x)), expected, atol=1e-5)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


PLAIN = {
    "relu": lambda x: max(x, 0.0),
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "quick-gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


def test_all_activations_are_tested() -> None:
    assert set(PLAIN) == set(ACTIVATIONS)


@pytest.mark.parametrize("activation", PLAIN)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_feed_forward_follows_the_formula(
    device: torch.device, randomized: Randomise, activation: str, gated: bool, bias: bool
) -> None:
    layer = LayerConfig(width=4, heads=1, ffn=6, activation=activation, gated=gated, bias=bias)
    module = randomized(FeedForward(layer)).to(device)
    x = torch.randn(2, 3, 4, device=device)

    def linear(m: nn.Linear, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return rows @ array(m.weight).T + (array(m.bias) if bias else 0.0)

    inner = linear(module.inner, array(x))
    inner, gate = np.split(inner, 2, axis=-1) if gated else (inner, 1.0)
    inner = np.vectorize(PLAIN[activation])(inner) * gate
    np.testing.assert_allclose(array(module(x)), linear(module.outer, inner), atol=1e-5)
    assert (module.inner.bias is not None) == bias


def test_feed_forward_treats_positions_independently(device: torch.device) -> None:
    module, x = FeedForward(LAYER).to(device), torch.randn(2, 5, 8, device=device)
    alone = torch.stack([module(x[:, t]) for t in range(5)], dim=1)
    torch.testing.assert_close(module(x), alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("first", [False, True])
def test_residual_puts_the_norm_after_or_before(device: torch.device, randomized: Randomise, first: bool) -> None:
    residual = randomized(Residual(LayerConfig(width=8, heads=2, ffn=12, norm_first=first))).to(device)
    branch, x = nn.Linear(8, 8).to(device), torch.randn(2, 8, device=device)
    expected = x + branch(residual.norm(x)) if first else residual.norm(x + branch(x))
    assert torch.equal(residual(x, branch), expected)


@pytest.mark.parametrize("first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
def test_order_of_sublayers(device: torch.device, randomized: Randomise, first: bool, cross: bool) -> None:
    layer = LayerConfig(width=8, heads=2, ffn=12, norm_first=first, cross=cross, causal=cross)
    block = randomized(Block(layer)).to(device)
    x, memory = torch.randn(2, 4, 8, device=device), torch.randn(2, 3, 8, device=device)
    layout, source = Padded.from_lengths([4, 2], device=device), Padded.from_lengths([3, 1], device=device)

    def step(x: Tensor, residual: Residual, branch: Callable[[Tensor], Tensor]) -> Tensor:
        return x + branch(residual.norm(x)) if first else residual.norm(x + branch(x))

    y = step(x, block.attention_residual, lambda h: block.attention(h, layout))
    if cross:
        y = step(y, block.cross_residual, lambda h: block.cross(h, Context(layout, memory, source)))
    y = step(y, block.ffn_residual, block.ffn)
    got = block(x, Context(layout, memory, source)) if cross else block(x, layout)
    assert got.shape == x.shape
    torch.testing.assert_close(got, y, atol=1e-6, rtol=1e-6)
    if not first:  # a post-norm layer ends with its norm
        inside = (got - block.ffn_residual.norm.bias) / block.ffn_residual.norm.weight
        torch.testing.assert_close(inside.mean(-1), torch.zeros(2, 4, device=device), atol=1e-4, rtol=0)


def test_encoder_block_equals_numpy_reference(randomized: Randomise) -> None:
    """Independent NumPy implementation: MHA, add and norm, FFN, add and norm."""
    block = randomized(Block(LayerConfig(width=8, heads=2, ffn=12, activation="relu", eps=1e-6))).double()
    x = torch.randn(5, 8, dtype=torch.float64)
    weights = {name: array(p) for name, p in block.named_parameters()}

    def norm(rows: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        centered = rows - rows.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
        return scaled * weights[f"{name}.norm.weight"] + weights[f"{name}.norm.bias"]

    def linear(rows: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    query, key, value = np.split(linear(array(x), "attention.project"), 3, axis=-1)
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        scores = np.exp(query[:, part] @ key[:, part].T / math.sqrt(4))
        heads.append(scores / scores.sum(-1, keepdims=True) @ value[:, part])
    attended = norm(array(x) + linear(np.concatenate(heads, -1), "attention.output"), "attention_residual")
    fed = norm(attended + linear(np.maximum(linear(attended, "ffn.inner"), 0), "ffn.outer"), "ffn_residual")
    np.testing.assert_allclose(array(block(x[None], Padded())[0]), fed, atol=1e-10)


def test_head_size_is_independent_of_the_width(device: torch.device) -> None:
    block = Block(LayerConfig(width=8, heads=2, ffn=12, head_width=16, cross=True)).to(device)
    assert block.attention.output.weight.shape == (8, 32)
    x = torch.randn(2, 3, 8, device=device)
    assert block(x, Context(Padded(), x, Padded())).shape == (2, 3, 8)


@pytest.mark.parametrize("first", [False, True])
def test_without_positions_order_does_not_matter(device: torch.device, randomized: Randomise, first: bool) -> None:
    """Self-attention is permutation-equivariant: permuted tokens give permuted outputs. A causal mask breaks this."""
    x, order = torch.randn(2, 6, 8, device=device), torch.tensor([3, 0, 5, 1, 4, 2], device=device)
    encoder = randomized(stacked(LayerConfig(width=8, heads=2, ffn=12, norm_first=first), 2)).to(device)
    torch.testing.assert_close(encoder(x[:, order], Padded()), encoder(x, Padded())[:, order], atol=1e-5, rtol=1e-5)
    decoder = randomized(stacked(LayerConfig(width=8, heads=2, ffn=12, norm_first=first, causal=True), 2)).to(device)
    assert (decoder(x[:, order], Padded()) - decoder(x, Padded())[:, order]).abs().max() > 1e-2


def test_dropout_applies_in_training_only(device: torch.device) -> None:
    block = Block(LayerConfig(width=8, heads=2, ffn=12, dropout=0.5, attention_dropout=0.5, ffn_dropout=0.5)).to(device)
    x = torch.randn(2, 4, 8, device=device)
    assert torch.equal(block.eval()(x, Padded()), block(x, Padded()))
    assert not torch.equal(block.train()(x, Padded()), block(x, Padded()))


def test_a_packed_block_equals_a_padded_one(device: torch.device, randomized: Randomise) -> None:
    block = randomized(Block(LAYER)).to(device)
    lengths = [3, 5, 5, 1]
    x = torch.randn(sum(lengths), 8, device=device)
    rectangle = nn.utils.rnn.pad_sequence(list(x.split(lengths)), batch_first=True, padding_value=7.0)
    layout = Padded.from_lengths(lengths, device=device)
    got = block(x, Packed.from_lengths(lengths, device=device))
    torch.testing.assert_close(got, block(rectangle, layout)[layout.mask], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_selected_rows_equal_the_full_output(
    device: torch.device, randomized: Randomise, first: bool, layout: str
) -> None:
    """Attention reads all tokens; the following sublayers are computed for the selected rows only."""
    block = randomized(Block(LayerConfig(width=8, heads=2, ffn=12, norm_first=first))).to(device)
    packed = Packed.from_lengths([3, 5, 4], device=device)
    x = torch.randn(12, 8, device=device) if layout == "packed" else torch.randn(3, 4, 8, device=device)
    lying = packed if layout == "packed" else Padded.from_lengths([3, 4, 2], device=device)
    rows, seen = torch.tensor([9, 2, 0, 9], device=device), []
    whole = block(x, lying)
    block.ffn.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape))
    torch.testing.assert_close(
        block(x, Context(lying, output_positions=rows)), whole.reshape(12, 8)[rows], atol=1e-6, rtol=1e-6
    )
    assert seen == [(4, 8)]


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("first", [False, True], ids=["post-norm", "pre-norm"])
def test_residual_stream_has_half_precision_under_autocast(
    device: torch.device, randomized: Randomise, first: bool, norm: Any
) -> None:
    """Norms compute in float32 with float32 weights and return half precision, and so does the whole layer."""
    block = randomized(Block(LayerConfig(width=8, heads=2, ffn=12, norm_first=first, norm=norm, eps=1e-6))).to(device)
    x = (torch.randn(2, 5, 8, device=device) * 3).bfloat16()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        got = block(x, Padded())
        branch = block.attention(block.attention_residual.norm(x) if first else x, Padded())
        attended = block.attention_residual(x, block.attention, Context(Padded()))
    assert got.dtype == branch.dtype == attended.dtype == torch.bfloat16
    total = x + branch
    expected = total if first else block.attention_residual.norm(total.float()).bfloat16()
    torch.testing.assert_close(attended, expected, atol=0, rtol=2**-7)  # one bit of bfloat16
    torch.testing.assert_close(got.float(), block(x.float(), Padded()), atol=0.1, rtol=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("first", [False, True], ids=["post-norm", "pre-norm"])
def test_dtype_is_preserved_without_autocast(device: torch.device, first: bool, dtype: torch.dtype) -> None:
    block = Block(LayerConfig(width=8, heads=2, ffn=12, norm_first=first)).to(device, dtype)
    assert block(torch.randn(2, 5, 8, device=device, dtype=dtype), Padded()).dtype == dtype
