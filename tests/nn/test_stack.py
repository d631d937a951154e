"""A stack of blocks: its states, its final norm, T5's shared bias, caches, and batches in any layout."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn.block import LayerConfig
from regard.nn.cache import StackCache
from regard.nn.embedding import RelativePositionBias
from regard.nn.masks import Context, Packed, Padded
from regard.nn.stack import Stack
from tests.nn.stacks import stacked

LAYER = LayerConfig(width=8, heads=2, ffn=12, eps=1e-6)
KINDS = {
    "encoder": LAYER,
    "encoder with bias": replace(LAYER, norm_first=True, norm="rms", bias=False, scale=1.0),
    "decoder": replace(LAYER, causal=True, norm_first=True),
    "decoder with bias": replace(LAYER, causal=True, norm_first=True, norm="rms", bias=False, scale=1.0),
    "decoder with memory": replace(LAYER, causal=True, cross=True),
    "decoder with memory and bias": replace(LAYER, causal=True, cross=True, norm_first=True, scale=1.0),
}
Randomise = Callable[..., Any]


def make_stack(kind: str, randomized: Randomise, device: torch.device) -> Stack:
    layer = KINDS[kind]
    relative = RelativePositionBias(2, buckets=8, max_distance=16, causal=layer.causal) if "bias" in kind else None
    stack: Stack = randomized(stacked(layer, 2, final_norm=layer.norm_first, relative=relative)).to(device)
    return stack


def test_states_are_the_input_each_layer_and_the_final_norm(device: torch.device, randomized: Randomise) -> None:
    stack = randomized(stacked(replace(LAYER, norm_first=True), 3, final_norm=True)).to(device)
    x = torch.randn(2, 4, 8, device=device)
    states = list(stack.states(x, Padded()))
    assert len(states) == 4 and states[0] is x
    h = x
    for number, block in enumerate(stack.layers, start=1):
        h = block(h, Padded())
        expected = stack.norm(h) if number == 3 else h
        torch.testing.assert_close(states[number], expected, atol=1e-6, rtol=1e-6)
    assert torch.equal(stack(x, Padded()), states[-1])


def test_layers_have_separate_weights_and_accept_any_length(device: torch.device) -> None:
    stack = stacked(LAYER, 6).to(device)
    assert len(stack.layers) == 6
    assert len({p.data_ptr() for p in stack.parameters()}) == len(list(stack.parameters()))
    first, second = (dict(stack.layers[i].named_parameters()) for i in (0, 1))
    assert all(not torch.equal(first[n], second[n]) for n in first if n.endswith("weight") and "norm" not in n)
    for length in (1, 7, 50):
        assert stack(torch.randn(1, length, 8, device=device), Padded()).shape == (1, length, 8)


def test_early_stop_skips_the_upper_layers(device: torch.device) -> None:
    stack, ran = stacked(LAYER, 4).to(device), []
    for number, block in enumerate(stack.layers):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    for number, _ in enumerate(stack.states(torch.randn(1, 2, 8, device=device), Padded())):
        if number == 2:
            break
    assert ran == [0, 1]


def test_all_layers_share_one_bias(device: torch.device, randomized: Randomise) -> None:
    stack = make_stack("encoder with bias", randomized, device)
    x, seen = torch.randn(1, 5, 8, device=device), []
    for block in stack.layers:
        block.attention.register_forward_pre_hook(lambda _, args: seen.append(args[1].bias))
    before = stack(x, Padded())
    assert len(seen) == 2 and torch.equal(seen[0], seen[1]) and torch.equal(seen[0], stack.relative(5, 5))
    nn.init.zeros_(stack.relative.table.weight)
    assert (stack(x, Padded()) - before).abs().max() > 1e-3


def test_all_layers_attend_to_the_same_memory(device: torch.device, randomized: Randomise) -> None:
    """Keys and values of all decoder layers come from the last encoder layer."""
    stack, seen = make_stack("decoder with memory", randomized, device), []
    for block in stack.layers:
        block.cross.project.register_forward_pre_hook(lambda _, args: seen.append(args[1]))
    memory = torch.randn(2, 3, 8, device=device)
    stack(torch.randn(2, 4, 8, device=device), Context(Padded(), memory, Padded()))
    assert len(seen) == 2 and all(one is memory for one in seen)


def batch(
    kind: str, pool: list[tuple[Tensor, Tensor]], chosen: list[int], layout: str, device: torch.device
) -> list[Any]:
    """The selected sequences (and memories) as arguments of a stack; padding is filled with junk."""
    arguments: list[Any] = []
    for side in (0, 1) if "memory" in kind else (0,):
        parts = [pool[i][side] for i in chosen]
        lengths = [len(part) for part in parts]
        if layout == "packed":
            arguments += [torch.cat(parts), Packed.from_lengths(lengths, device=device)]
        else:
            rows = nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=5.0)
            arguments += [rows, Padded.from_lengths(lengths, device=device)]
    return arguments


def run(stack: Stack, arguments: list[Any]) -> Tensor:
    x, *context = arguments
    output: Tensor = stack(x, Context(*context))
    return output


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_do_not_depend_on_the_batch(device: torch.device, randomized: Randomise, kind: str) -> None:
    """100 random padded and packed batches in any order give the outputs of each sequence alone."""
    stack, draw = make_stack(kind, randomized, device).eval(), random.Random(7)
    pool = [
        (torch.randn(draw.randint(1, 7), 8, device=device), torch.randn(draw.randint(1, 7), 8, device=device))
        for _ in range(12)
    ]
    with torch.no_grad():
        alone = [run(stack, batch(kind, pool, [i], "padded", device))[0] for i in range(12)]
        for _ in range(100):
            chosen = draw.sample(range(12), draw.randint(1, 8))
            lengths = [len(pool[i][0]) for i in chosen]
            in_rows = run(stack, batch(kind, pool, chosen, "padded", device))
            in_line = run(stack, batch(kind, pool, chosen, "packed", device)).split(lengths)
            for i, length, row, piece in zip(chosen, lengths, in_rows, in_line, strict=True):
                torch.testing.assert_close(row[:length], alone[i], atol=1e-5, rtol=1e-5)
                torch.testing.assert_close(piece, alone[i], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_and_padded_have_the_same_gradients(device: torch.device, randomized: Randomise, kind: str) -> None:
    stack = make_stack(kind, randomized, device)
    pool = [(torch.randn(t, 8, device=device), torch.randn(s, 8, device=device)) for t, s in ((3, 4), (5, 2), (5, 2))]
    gradients = []
    for layout in ("padded", "packed"):
        arguments = batch(kind, pool, [0, 1, 2], layout, device)
        output = run(stack, arguments)
        tokens = output[arguments[1].mask] if layout == "padded" else output
        weights = torch.linspace(-1, 1, tokens.numel(), device=device).view_as(tokens)
        gradients.append(torch.autograd.grad((tokens * weights).sum(), list(stack.parameters())))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "decoder" in kind])
@pytest.mark.parametrize("steps", [[1] * 6, [3, 1, 2], [1, 5], [4, 2]], ids=str)
def test_cached_equals_uncached(device: torch.device, randomized: Randomise, kind: str, steps: list[int]) -> None:
    stack = make_stack(kind, randomized, device)
    x = torch.randn(3, 6, 8, device=device)
    memory = (
        (torch.randn(3, 4, 8, device=device), Padded.from_lengths([4, 1, 3], device=device)) if "memory" in kind else ()
    )
    cache, pieces = StackCache(2), []
    for piece in x.split(steps, dim=1):
        pieces.append(stack(piece, Context(Padded(), *memory, cache=cache)))
        assert cache.length == sum(p.shape[1] for p in pieces)
    torch.testing.assert_close(torch.cat(pieces, dim=1), stack(x, Context(Padded(), *memory)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "decoder" in kind])
def test_decoder_does_not_see_later_tokens(device: torch.device, randomized: Randomise, kind: str) -> None:
    stack = make_stack(kind, randomized, device)
    x = torch.randn(2, 6, 8, device=device)
    memory = (torch.randn(2, 4, 8, device=device), Padded()) if "memory" in kind else ()
    changed = x.clone()
    changed[:, 4:] = torch.randn(2, 2, 8, device=device)
    before, after = stack(x, Context(Padded(), *memory)), stack(changed, Context(Padded(), *memory))
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=1e-6, rtol=0)
    assert (after[:, 4:] - before[:, 4:]).abs().max() > 1e-2


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "memory" not in kind])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_selected_rows_equal_the_full_output(
    device: torch.device, randomized: Randomise, kind: str, layout: str
) -> None:
    """Outputs and gradients are equal; layers below the last are computed for every token."""
    stack = make_stack(kind, randomized, device)
    pool = [(torch.randn(length, 8, device=device), torch.empty(0)) for length in (3, 5, 5, 1)]
    x, lying = batch(kind, pool, [0, 1, 2, 3], layout, device)
    x.requires_grad_()
    tokens = torch.arange(14, device=device) if layout == "packed" else lying.mask.flatten().nonzero().squeeze(1)
    rows = tokens[torch.tensor([11, 2, 13, 2, 7], device=device)]
    seen: list[tuple[int, ...]] = []
    whole = stack(x, lying).reshape(-1, 8)[rows]
    for block in stack.layers:
        block.ffn.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape)))
    some = stack(x, Context(lying, output_positions=rows))
    assert seen == [tuple(x.shape), (5, 8)]
    torch.testing.assert_close(some, whole, atol=1e-5, rtol=1e-5)
    weights = torch.linspace(-1, 1, some.numel(), device=device).view_as(some)
    wanted = [x, *stack.parameters()]
    one, other = (torch.autograd.grad((y * weights).sum(), wanted) for y in (some, whole))
    for mine, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_all_states_have_half_precision_under_autocast(device: torch.device, randomized: Randomise, kind: str) -> None:
    stack = make_stack(kind, randomized, device)
    pool = [(torch.randn(4, 8, device=device), torch.randn(3, 8, device=device))] * 2
    arguments = [a.bfloat16() if isinstance(a, Tensor) else a for a in batch(kind, pool, [0, 1], "padded", device)]
    with torch.autocast(device.type, dtype=torch.bfloat16):
        *states, last = stack.states(arguments[0], Context(*arguments[1:]))
    assert {state.dtype for state in states} == {torch.bfloat16}
    assert last.isfinite().all()
