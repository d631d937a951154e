"""Key-value caches: appending, one projection of the memory, reordering."""

from __future__ import annotations

from dataclasses import replace

import torch

from regard.nn.block import LayerConfig
from regard.nn.cache import DecoderState, KVCache, StackCache
from regard.nn.masks import Context, Padded
from tests.nn.stacks import stacked

LAYER = LayerConfig(width=8, heads=2, ffn=12, causal=True)


def test_keys_and_values_are_appended(device: torch.device) -> None:
    pairs = KVCache()
    parts = [torch.randn(2, 3, length, 4, device=device) for length in (2, 1, 3)]
    for part in parts:
        key, value = pairs.extend(part, -part)
    assert torch.equal(key, torch.cat(parts, dim=2)) and torch.equal(value, -key)
    assert pairs.key is not None and torch.equal(pairs.key, key)
    assert pairs.value is not None and torch.equal(pairs.value, value)


def test_cache_copies_only_when_its_capacity_is_exceeded(device: torch.device) -> None:
    pairs, steps = KVCache(), [torch.randn(1, 2, 1, 4, device=device) for _ in range(300)]
    addresses = set()
    for number, one in enumerate(steps, start=1):
        key, value = pairs.extend(one, 2 * one)
        addresses.add(key.data_ptr())
        if number in (1, 2, 63, 64, 65, 66, 200, 300):
            assert torch.equal(key, torch.cat(steps[:number], dim=2)) and torch.equal(value, 2 * key)
    assert len(addresses) < 6


def test_cache_preserves_gradients(device: torch.device) -> None:
    weight = torch.randn(4, 4, device=device, requires_grad=True)
    pairs, parts = KVCache(), [torch.randn(1, 2, 2, 4, device=device) for _ in range(3)]
    total = torch.zeros((), device=device)
    for part in parts:
        key, value = pairs.extend(part @ weight, part)
        total = total + (key * value).square().sum()
    (found,) = torch.autograd.grad(total, weight)
    whole = [torch.cat(parts[:count], dim=2) for count in (1, 2, 3)]
    expected = sum(((one @ weight) * one).square().sum() for one in whole)
    assert isinstance(expected, torch.Tensor)
    torch.testing.assert_close(found, torch.autograd.grad(expected, weight)[0])


def test_cache_started_without_gradients_continues_with_gradients(device: torch.device) -> None:
    pairs, part = KVCache(), torch.randn(1, 2, 1, 4, device=device)
    with torch.inference_mode():
        pairs.extend(part, part)
        pairs.extend(part, part)
    key, _ = pairs.extend(part, part)
    assert torch.equal(key, part.expand(1, 2, 3, 4))


def test_cache_length_and_independence_of_calls(device: torch.device) -> None:
    stack = stacked(LAYER, 2).to(device)
    one, other = StackCache(2), StackCache(2)
    assert one.length == 0
    stack(torch.randn(1, 3, 8, device=device), Context(Padded(), cache=one))
    stack(torch.randn(1, 2, 8, device=device), Context(Padded(), cache=one))
    assert (one.length, other.length) == (5, 0)


def test_a_memory_is_projected_once_per_source(device: torch.device) -> None:
    stack = stacked(replace(LAYER, cross=True), 2).to(device)
    cache, memory, times = StackCache(2), torch.randn(2, 4, 8, device=device), []
    for block in stack.layers:
        block.cross.project.key.register_forward_hook(lambda *_: times.append(1))
    for _ in range(3):
        stack(torch.randn(2, 1, 8, device=device), Context(Padded(), memory, Padded(), cache=cache))
    assert len(times) == 2
    assert cache.layers[0].cross_attention.key is not None and cache.layers[0].cross_attention.key.shape == (2, 2, 4, 4)


def test_reorder_moves_rows(device: torch.device) -> None:
    """After `reorder(index)`, row i continues row index[i]; rows may be repeated."""
    stack = stacked(replace(LAYER, cross=True), 2).to(device)
    memory, source = torch.randn(3, 4, 8, device=device), Padded.from_lengths([4, 2, 3], device=device)
    x, index = torch.randn(3, 3, 8, device=device), torch.tensor([2, 0, 2], device=device)
    state = DecoderState(StackCache(2), torch.ones(3, 0, dtype=torch.bool, device=device), memory, source)
    stack(x[:, :2], Context(Padded(), memory, source, cache=state.cache))
    state.extend(2)
    state.reorder(index)
    assert state.memory is not None and state.memory_layout is not None and state.memory_layout.mask is not None
    assert torch.equal(state.memory, memory[index]) and torch.equal(state.memory_layout.mask, source.mask[index])
    got = stack(x[index, 2:], Context(Padded(), state.memory, state.memory_layout, cache=state.cache))
    expected = stack(x, Context(Padded(), memory, source))[index, 2:]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_a_state_counts_the_tokens_of_each_row(device: torch.device) -> None:
    state = DecoderState(StackCache(1), torch.tensor([[True, True, False], [True, False, False]], device=device))
    state.extend(1)
    assert state.lengths.tolist() == [3, 2]
    state.reorder(torch.tensor([1, 1], device=device))
    assert state.mask.tolist() == [[True, False, False, True]] * 2
    assert state.memory is None


def test_an_unused_cache_can_be_reordered() -> None:
    cache = StackCache(2)
    cache.reorder(torch.tensor([0]))
    assert cache.length == 0 and cache.layers[0].self_attention.key is None
