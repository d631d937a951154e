"""The kernels of `dropout_attention` against explicit attention with the same mask.

On a CPU they run in Triton's interpreter, if Triton is installed, in float32; on a GPU in bfloat16.
"""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.attention import Attention, FusedProjection
from regard.nn.fast import dropout_attention as subject
from regard.nn.fast.dropout_attention import Blocks, KernelConfig, dropout_attention, dropout_factors
from regard.nn.masks import Context, Packed, Padded

CUDA = torch.cuda.is_available()
DEVICE, DTYPE = (torch.device("cuda"), torch.bfloat16) if CUDA else (torch.device("cpu"), torch.float32)
TOLERANCE = 3e-2 if CUDA else 1e-5
HEADS, WIDTH, SCALE = 2, 32, 0.2
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
needs_gpu = pytest.mark.skipif(not CUDA, reason="compiled kernels need a GPU")

SMALL = Blocks(16, 16, 4, 1)
CONFIGS = {
    "one block of keys": KernelConfig(SMALL, replace(SMALL, columns=64)),
    "several blocks of keys": KernelConfig(replace(SMALL, columns=64), replace(SMALL, rows=32)),
    "keys and queries apart": KernelConfig(replace(SMALL, rows=32), replace(SMALL, columns=32), SMALL),
}


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpret the kernels on a CPU, if Triton was not imported before without its interpreter."""
    if CUDA or find_spec("triton") is None:
        return
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    from triton.language import standard
    from triton.runtime import interpreter as module

    if not isinstance(standard.cdiv, module.InterpretedFunction):
        pytest.skip("Triton was imported without its interpreter")
    original = module._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        """The interpreter's own conversion to int fails with NumPy 2.4."""
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(module, "_patch_lang_tensor", patch)


def dropout_mask(factors: Tensor, rows: slice, dropout: float) -> Tensor:
    """Return the mask (H, T, T) of the tokens `rows` of one sequence: 0, or 1 / (1 - dropout)."""
    queries, keys = factors[:, :, rows].long()
    products = (queries[:, :, None] * keys[:, None, :]) & (2**32 - 1)
    signed = torch.where(products < 2**31, products, products - 2**32)
    return (signed >= int(dropout * 2**32) - 2**31).float() / (1 - dropout)


def explicit(qkv: Tensor, factors: Tensor, lengths: list[int], dropout: float, causal: bool) -> Tensor:
    """Return (softmax(scale Q K^T) * Z) V, (N, H, D), one sequence at a time."""
    pieces, start = [], 0
    for length in lengths:
        rows = slice(start, start + length)
        query, key, value = qkv[rows].float().permute(1, 2, 0, 3)
        scores = SCALE * query @ key.mT
        if causal:
            future = torch.ones(length, length, dtype=torch.bool, device=qkv.device).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        weights = scores.softmax(-1) * dropout_mask(factors, rows, dropout)
        pieces.append((weights @ value).transpose(0, 1))
        start += length
    return torch.cat(pieces)


def random_inputs(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a fused projection, dropout factors and a gradient of the output."""
    qkv = torch.randn(tokens, 3, HEADS, WIDTH, device=DEVICE, dtype=DTYPE, requires_grad=True)
    return qkv, dropout_factors(HEADS, tokens, DEVICE), torch.randn(tokens, HEADS, WIDTH, device=DEVICE, dtype=DTYPE)


@needs_triton
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [64, 41])
def test_padded(config: str, causal: bool, length: int) -> None:
    check([length, length], None, config, causal=causal, dropout=0.3)


@needs_triton
@pytest.mark.parametrize("config", CONFIGS)
def test_packed(config: str) -> None:
    lengths = [19, 33, 1]
    starts = torch.tensor([0, 19, 52, 53, 53], dtype=torch.int32, device=DEVICE)  # the last sequence is empty
    check(lengths, starts, config, causal=False, dropout=0.3)


def check(lengths: list[int], starts: Tensor | None, config: str, *, causal: bool, dropout: float) -> None:
    qkv, factors, gradient = random_inputs(sum(lengths))
    settings = starts, max(lengths), dropout, SCALE, causal
    with torch.no_grad():
        out, lse = subject.run_forward(qkv, factors, *settings, CONFIGS[config])
        result = subject.run_backward(gradient, qkv, out, lse, factors, *settings, CONFIGS[config])
    expected = explicit(qkv, factors, lengths, dropout, causal)
    (expected_gradient,) = torch.autograd.grad(expected, qkv, gradient.float())
    assert torch.allclose(out.float(), expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert torch.allclose(result.float(), expected_gradient.float(), atol=2 * TOLERANCE, rtol=TOLERANCE)


@needs_triton
@pytest.mark.parametrize("causal", [False, True])
def test_without_dropout_it_equals_sdpa(causal: bool) -> None:
    qkv = torch.randn(2, 20, 3 * HEADS * WIDTH, device=DEVICE, dtype=DTYPE, requires_grad=True)
    mixed = dropout_attention(qkv, heads=HEADS, dropout=0.0, scale=SCALE, causal=causal)
    query, key, value = qkv.view(2, 20, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=SCALE).transpose(1, 2)
    assert torch.allclose(mixed, expected, atol=TOLERANCE, rtol=TOLERANCE)
    above = torch.randn_like(expected)
    gradients = [torch.autograd.grad(result, qkv, above)[0] for result in (mixed, expected)]
    assert torch.allclose(*gradients, atol=2 * TOLERANCE, rtol=TOLERANCE)


@needs_triton
def test_operators_have_the_schema_and_shapes_that_the_compiler_assumes() -> None:
    qkv, factors, _ = random_inputs(20)
    arguments = qkv, factors, None, 20, 0.1, SCALE, False
    tests = "test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static"
    torch.library.opcheck(subject._forward, arguments, test_utils=tests)


def test_masks_look_random() -> None:
    """The rate, and the correlations of rows, of columns, of heads, of neighbors and of squares, are random."""
    heads, length, dropout = 48, 128, 0.1
    factors = dropout_factors(heads, length, torch.device("cpu"))
    dropped = (dropout_mask(factors, slice(None), dropout) == 0).double() - dropout
    unit = dropped / math.sqrt(dropout * (1 - dropout))  # mean 0 and variance 1
    count = unit.numel()
    assert abs(unit.sum()) / math.sqrt(count) < 5
    assert abs((unit.sum(2) ** 2 / length).mean() - 1) < 0.1  # the rates of rows vary as sums of independent numbers
    assert abs((unit.sum(1) ** 2 / length).mean() - 1) < 0.1
    for pairs in (unit @ unit.mT, unit.mT @ unit, (flat := unit.flatten(1)) @ flat.T):
        size = count / pairs.shape[-1] / (heads if pairs.dim() == 3 else 1)
        others = pairs - torch.diag_embed(pairs.diagonal(dim1=-2, dim2=-1))
        assert abs((others**2).sum() / (others != 0).sum() / size - 1) < 0.1
    for lag in (1, 2, 8, 64):
        assert abs((unit[:, lag:] * unit[:, :-lag]).sum()) / math.sqrt(count) < 5
        assert abs((unit[..., lag:] * unit[..., :-lag]).sum()) / math.sqrt(count) < 5
    squares = unit[:, 1:, 1:] * unit[:, 1:, :-1] * unit[:, :-1, 1:] * unit[:, :-1, :-1]
    assert abs(squares.sum()) / math.sqrt(count) < 5
    assert (dropout_factors(1, 8, torch.device("cpu")) % 2 == 1).all()


def test_attention_uses_the_kernel_only_where_it_applies() -> None:
    attention = Attention(FusedProjection(64, 64), torch.nn.Linear(64, 64), heads=2, dropout=0.1).train()
    x = torch.randn(2, 5, 64)
    assert not attention._trains_with_kernel(x, Context(Padded()))  # on a CPU
    assert not subject.is_supported(x, dtype=torch.bfloat16, width=32, length=5)


@needs_gpu
@needs_triton
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_trains_with_the_kernel(packed: bool, causal: bool) -> None:
    """With weak dropout the compiled module returns nearly what it returns without; its gradients are finite."""
    layout: Any = Packed.from_lengths([100, 28], device=DEVICE) if packed else Padded()
    attention = Attention(FusedProjection(128, 128), torch.nn.Linear(128, 128), heads=2, causal=causal, dropout=1e-3)
    attention = attention.to(DEVICE).train()
    x = torch.randn(*((128,) if packed else (2, 64)), 128, device=DEVICE, requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        assert attention._trains_with_kernel(x, Context(layout))
        found = torch.compile(attention, fullgraph=True)(x, layout)
        expected = attention.eval()(x, layout)
    assert (found - expected).abs().mean() < 0.02
    gradients = torch.autograd.grad(found.float().square().sum(), [x, *attention.parameters()])
    assert all(gradient.isfinite().all() and gradient.abs().sum() > 0 for gradient in gradients)
