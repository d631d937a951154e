"""Fused kernels and the explicit attention path give the same outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn.attention import Attention, FusedProjection, SeparateProjections
from regard.nn.cache import KVCache
from regard.nn.embedding import RelativePositionBias
from regard.nn.masks import Context, Layout, Packed, Padded
from regard.nn.recording import Tape, record
from regard.nn.rotary import Rotary

WIDTH, HEADS, INNER = 16, 2, 32
TOLERANCES = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (2e-2, 2e-2)}  # for values and for gradients
QUERIES, KEYS = [5, 3, 3, 1], [4, 6, 6, 2]
Explicit = Callable[[nn.Module], AbstractContextManager[Tape]]
Randomise = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """An attention configuration: `cached` previous tokens, then `steps` tokens at once."""

    causal: bool = False
    cross: bool = False
    layout: str = "full"  # full, padded, packed
    bias: bool = False
    cached: int = 0
    steps: int = 5
    grouped: bool = False  # one key head, with rotary positions and query-key norms
    window: int | None = None


CASES = {
    "full": Case(),
    "padded": Case(layout="padded"),
    "packed": Case(layout="packed"),
    "bias": Case(bias=True),
    "bias, padded": Case(bias=True, layout="padded"),
    "bias, packed": Case(bias=True, layout="packed"),
    "causal": Case(causal=True),
    "causal, padded": Case(causal=True, layout="padded"),
    "causal, packed": Case(causal=True, layout="packed"),
    "causal, bias": Case(causal=True, bias=True),
    "causal, bias, padded": Case(causal=True, bias=True, layout="padded"),
    "causal, bias, packed": Case(causal=True, bias=True, layout="packed"),
    "cached, one token": Case(causal=True, cached=4, steps=1),
    "cached, several tokens": Case(causal=True, cached=4, steps=3),
    "cached, one token, padded": Case(causal=True, cached=4, steps=1, layout="padded"),
    "cached, several tokens, padded": Case(causal=True, cached=4, steps=3, layout="padded"),
    "cached, one token, bias": Case(causal=True, cached=4, steps=1, bias=True),
    "cached, several tokens, bias": Case(causal=True, cached=4, steps=3, bias=True),
    "grouped": Case(grouped=True),
    "grouped, padded": Case(grouped=True, layout="padded"),
    "grouped, packed": Case(grouped=True, layout="packed"),
    "grouped, causal": Case(grouped=True, causal=True),
    "grouped, bias": Case(grouped=True, bias=True),
    "grouped, causal, packed": Case(grouped=True, causal=True, layout="packed"),
    "grouped, cached, one token": Case(grouped=True, causal=True, cached=4, steps=1),
    "grouped, cached, one token, padded": Case(grouped=True, causal=True, cached=4, steps=1, layout="padded"),
    "grouped, cached, one token, bias": Case(grouped=True, causal=True, cached=4, steps=1, bias=True),
    "grouped, cached, several tokens": Case(grouped=True, causal=True, cached=4, steps=3),
    "window": Case(window=1),
    "window, padded": Case(window=1, layout="padded"),
    "window, packed": Case(window=1, layout="packed"),
    "window, bias": Case(window=1, bias=True),
    "window, causal": Case(window=2, causal=True),
    "window, causal, padded": Case(window=2, causal=True, layout="padded"),
    "window, causal, packed": Case(window=1, causal=True, layout="packed", grouped=True),
    "window, cached, one token": Case(window=2, causal=True, cached=4, steps=1, grouped=True),
    "window, cached, several tokens, padded": Case(window=2, causal=True, cached=4, steps=3, layout="padded"),
    "cross": Case(cross=True),
    "cross, padded": Case(cross=True, layout="padded"),
    "cross, packed": Case(cross=True, layout="packed"),
    "cross, several steps": Case(cross=True, cached=2, steps=3, layout="padded"),
}


class AttentionWithBias(nn.Module):
    """An attention layer with an optional T5 position bias."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        linear = nn.Linear
        project = (
            SeparateProjections(linear(WIDTH, INNER), linear(WIDTH, INNER), linear(WIDTH, INNER))
            if case.cross
            else FusedProjection(WIDTH, INNER, key_inner=INNER // HEADS if case.grouped else None)
        )
        more = (Rotary(8), nn.RMSNorm(INNER // HEADS), nn.RMSNorm(INNER // HEADS)) if case.grouped else (None,) * 3
        self.attention = Attention(
            project,
            linear(INNER, WIDTH),
            heads=HEADS,
            causal=case.causal,
            window=case.window,
            **dict(zip(("positions", "query_norm", "key_norm"), more, strict=True)),
        )
        self.relative = (
            RelativePositionBias(HEADS, buckets=8, max_distance=16, causal=case.causal) if case.bias else None
        )
        self.case = case

    def forward(self, x: Tensor, layout: Layout, memory: Tensor | None, memory_layout: Layout | None) -> Tensor:
        case, cache = self.case, KVCache() if self.case.cached else None
        pieces = []
        if cache is not None:
            early = layout
            if isinstance(layout, Padded) and layout.mask is not None and not case.cross:
                early = Padded(layout.mask[:, : case.cached])
            before = x[:, : case.cached]
            pieces.append(self.attention(before, Context(early, memory, memory_layout, self._bias(before, 0), cache)))
        now = x[:, case.cached :] if cache is not None else x
        bias = self._bias(now, case.cached, layout)
        start = case.cached if cache is not None else 0
        pieces.append(self.attention(now, Context(layout, memory, memory_layout, bias, cache, start=start)))
        return torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]

    def _bias(self, x: Tensor, before: int, layout: Layout | None = None) -> Tensor | None:
        length = max(layout.lengths) if isinstance(layout, Packed) else x.shape[1]
        return None if self.relative is None else self.relative(length, length + before)


def inputs(case: Case, device: torch.device, dtype: torch.dtype) -> tuple[Any, ...]:
    """x, its layout, the memory and its layout; the same for each call."""
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype).requires_grad_()

    if case.layout == "packed":
        memory = (random(sum(KEYS), WIDTH), Packed.from_lengths(KEYS, device=device)) if case.cross else (None, None)
        return random(sum(QUERIES), WIDTH), Packed.from_lengths(QUERIES, device=device), *memory
    total, size = case.cached + case.steps, len(QUERIES)
    lengths = [total, *(max(1, total - cut) for cut in (1, 2, total))]
    own = Padded.from_lengths(lengths, device=device) if case.layout == "padded" else Padded()
    if not case.cross:
        return random(size, total, WIDTH), own, None, None
    keys = Padded.from_lengths(KEYS, device=device) if case.layout == "padded" else Padded()
    return random(size, total, WIDTH), Padded(), random(size, max(KEYS), WIDTH), keys


def run(module: AttentionWithBias, arguments: tuple[Any, ...]) -> tuple[Tensor, list[Tensor]]:
    output = module(*arguments)
    weights = torch.linspace(-1, 1, output.numel(), device=output.device).view_as(output)
    wanted = [a for a in arguments if isinstance(a, Tensor)] + list(module.parameters())
    return output.detach(), list(torch.autograd.grad((output.float() * weights).sum(), wanted))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=["fp32", "bf16"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", CASES)
def test_fused_equals_explicit(
    device: torch.device, explicit: Explicit, randomized: Randomise, name: str, training: bool, dtype: torch.dtype
) -> None:
    case = CASES[name]
    module = randomized(AttentionWithBias(case)).to(device, dtype).train(training)
    arguments = inputs(case, device, dtype)
    value, gradient = TOLERANCES[dtype]
    fused, fused_gradients = run(module, arguments)
    with explicit(module) as tape:
        built, built_gradients = run(module, arguments)
    assert sum(len(readings) for readings in tape.calls.values()) == (2 if case.cached else 1)
    assert all(r.edits and r.edits.weights for readings in tape.calls.values() for r in readings)
    assert fused.dtype == built.dtype == dtype and not fused.isnan().any()
    torch.testing.assert_close(fused, built, atol=value, rtol=value)
    for one, other in zip(fused_gradients, built_gradients, strict=True):
        if dtype == torch.float32:
            torch.testing.assert_close(one, other, atol=gradient, rtol=gradient)
        else:  # single bfloat16 values differ in their last bits: compare the norm
            assert (one - other).float().norm() <= gradient * (other.float().norm() + one.numel() ** 0.5)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.cached and not case.cross])
def test_cached_steps_equal_the_full_pass(device: torch.device, randomized: Randomise, name: str) -> None:
    case = CASES[name]
    module = randomized(AttentionWithBias(case)).to(device)
    x, layout, _, _ = inputs(case, device, torch.float32)
    bias = None if module.relative is None else module.relative(x.shape[1], x.shape[1])
    torch.testing.assert_close(
        module(x, layout, None, None), module.attention(x, Context(layout, bias=bias)), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("path", ["fused", "explicit"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=["fp32", "bf16"])
def test_rows_without_keys_are_zero_and_so_are_their_gradients(
    device: torch.device, explicit: Explicit, bias: bool, path: str, dtype: torch.dtype
) -> None:
    attention = Attention(SeparateProjections(nn.Identity(), nn.Identity(), nn.Identity()), nn.Identity(), heads=HEADS)
    x = torch.randn(2, 3, WIDTH, device=device, dtype=dtype, requires_grad=True)
    keep = torch.tensor([[False, False, False], [True, True, False]], device=device)
    added = torch.randn(1, HEADS, 3, 3, device=device) if bias else None
    with explicit(attention) if path == "explicit" else nullcontext():
        output = attention(x, Context(Padded(keep), bias=added))
    (gradient,) = torch.autograd.grad(output.float().pow(2).sum(), x)
    assert output[1].abs().min() > 0 and output.isfinite().all() and gradient.isfinite().all()
    # The cuDNN kernel that torch uses for half precision with a mask gives such a row an average: finite, but not zero.
    # This is acceptable because only padding rows have no keys.
    if not (device.type == "cuda" and dtype == torch.bfloat16 and path == "fused" and not bias):
        assert output[0].abs().max() == 0 and gradient[0].abs().max() == 0


@pytest.mark.parametrize("path", ["fused", "explicit"])
def test_left_padding_with_a_causal_mask_gives_no_nan(device: torch.device, explicit: Explicit, path: str) -> None:
    attention = Attention(FusedProjection(WIDTH, INNER), nn.Linear(INNER, WIDTH), heads=HEADS, causal=True).to(device)
    x = torch.randn(2, 4, WIDTH, device=device)
    keep = torch.tensor([[False, False, True, True], [True, True, True, True]], device=device)
    with explicit(attention) if path == "explicit" else nullcontext():
        output = attention(x, Padded(keep))
    torch.testing.assert_close(output[0, :2], attention.output.bias.expand(2, WIDTH))
    torch.testing.assert_close(output[0, 2:], attention(x[:1, 2:], Padded())[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layout", ["full", "padded", "packed"])
@pytest.mark.parametrize("path", ["fused", "explicit"])
def test_causal_over_more_keys_than_queries_is_aligned_at_the_end(
    device: torch.device, explicit: Explicit, layout: str, path: str
) -> None:
    """With two queries and five keys, the first query sees four keys and the last all five, in every layout."""
    attention = Attention(SeparateProjections(nn.Identity(), nn.Identity(), nn.Identity()), nn.Identity(), causal=True)
    x, memory = torch.randn(2, 2, 4, device=device), torch.randn(2, 5, 4, device=device)
    with explicit(attention) if path == "explicit" else nullcontext():
        if layout == "packed":
            queries, keys = Packed.from_lengths([2, 2], device=device), Packed.from_lengths([5, 5], device=device)
            got = attention(x.flatten(0, 1), Context(queries, memory.flatten(0, 1), keys)).view(2, 2, 4)
        else:
            keys = Padded.from_lengths([5, 5], device=device) if layout == "padded" else Padded()
            got = attention(x, Context(Padded(), memory, keys))
    for t, seen in enumerate((4, 5)):
        weights = (x[:, t, None] @ memory[:, :seen].transpose(1, 2) / 2).softmax(-1)
        torch.testing.assert_close(got[:, t, None], weights @ memory[:, :seen], atol=1e-5, rtol=1e-5)


def test_dropout_works_on_both_paths_in_training_only(device: torch.device, explicit: Explicit) -> None:
    attention = Attention(FusedProjection(WIDTH, INNER), nn.Linear(INNER, WIDTH), heads=HEADS, dropout=0.5).to(device)
    x = torch.randn(2, 6, WIDTH, device=device)
    expected = attention.eval()(x, Padded())
    for path in (nullcontext(), explicit(attention)):
        with path:
            torch.testing.assert_close(attention.eval()(x, Padded()), expected, atol=1e-5, rtol=1e-5)
            draws = torch.stack([attention.train()(x, Padded()) for _ in range(200)])
        assert not torch.equal(draws[0], draws[1])
        torch.testing.assert_close(draws.mean(0), expected, atol=0.2, rtol=0)


@pytest.mark.parametrize("path", ["fused", "explicit"])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.cached])
def test_selected_rows_equal_the_full_output(
    device: torch.device, explicit: Explicit, randomized: Randomise, name: str, path: str
) -> None:
    module = randomized(AttentionWithBias(CASES[name])).to(device)
    x, layout, memory, memory_layout = inputs(CASES[name], device, torch.float32)
    rows = torch.tensor([7, 0, 3, 3], device=device)
    length = max(layout.lengths) if isinstance(layout, Packed) else x.shape[1]
    bias = None if module.relative is None else module.relative(length, length)
    seen = []
    with explicit(module) if path == "explicit" else nullcontext():
        whole = module.attention(x, Context(layout, memory, memory_layout, bias))
        module.attention.output.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape))
        some = module.attention(x, Context(layout, memory, memory_layout, bias, output_positions=rows))
    assert seen == [(4, INNER)]  # no output is computed for the others
    torch.testing.assert_close(some, whole.reshape(-1, WIDTH)[rows], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=["fp32", "bf16"])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_layout_without_lengths_gives_the_same_result(
    device: torch.device, randomized: Randomise, dtype: torch.dtype, causal: bool
) -> None:
    attention = Attention(FusedProjection(WIDTH, INNER), nn.Linear(INNER, WIDTH), heads=HEADS, causal=causal)
    attention = randomized(attention).to(device, dtype)
    tight = Packed.from_lengths(QUERIES, device=device)
    starts = torch.cat([tight.starts, tight.starts[-1:].expand(3)])
    loose = Packed(None, starts, tight.position_ids, 9)
    x = torch.randn(sum(QUERIES), WIDTH, device=device, dtype=dtype)
    value, _ = TOLERANCES[dtype]
    torch.testing.assert_close(attention(x, loose), attention(x, tight), atol=value, rtol=value)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.window is not None])
def test_window_hides_distant_keys_in_recorded_maps(device: torch.device, randomized: Randomise, name: str) -> None:
    case = CASES[name]
    module = randomized(AttentionWithBias(case)).to(device)
    assert case.window is not None
    with record(module) as tape:
        module(*inputs(case, device, torch.float32))
    (maps,) = tape.attention()
    seen = maps[0].detach().sum(0) > 0  # the first sequence has no padding
    order = torch.arange(len(seen), device=device)
    distance = order[:, None] - order
    expected = (distance.abs() <= case.window) & ((distance >= 0) | (not case.causal))
    assert torch.equal(seen, expected)
    (keys,) = tape.keys()
    assert keys.shape[1] == HEADS


def test_window_counts_positions_not_padding(device: torch.device, randomized: Randomise) -> None:
    """A short prompt is padded before its continuation: the window reaches over the padding."""
    case = Case(causal=True, window=2, grouped=True)
    attention = randomized(AttentionWithBias(case)).to(device).attention
    x = torch.randn(1, 6, WIDTH, device=device)
    whole = attention(x, Padded())
    cache, padded = KVCache(), torch.cat([x[:, :3], torch.randn(1, 4, WIDTH, device=device)], dim=1)
    mask = torch.tensor([[True] * 3 + [False] * 4], device=device)
    attention(padded, Context(Padded(mask), cache=cache))
    for position in range(3, 6):
        mask = torch.cat([mask, mask.new_ones(1, 1)], dim=1)
        step = attention(x[:, position : position + 1], Context(Padded(mask), cache=cache, start=position))
        torch.testing.assert_close(step[:, 0], whole[:, position], atol=1e-5, rtol=1e-5)
    assert cache.key is not None and cache.key.shape[1] == 1
