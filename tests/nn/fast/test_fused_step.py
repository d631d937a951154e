"""FusedStep: the same logits as the decoder stack; not used while recording."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.nn import recording
from regard.nn.fast.fused_step import FusedStep, supports_fused_step
from regard.nn.fast.packed_linear import PackedLinear
from regard.nn.masks import Padded
from tests.inference.generation.models import VOCABULARY, family

SOURCE = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 0], [6, 5, 0, 0]])
TOKENS = torch.tensor([[7, 8, 9], [1, 2, 3], [4, 4, 4], [11, 0, 18]])


def logits_of(model: Any, *, fused: bool, index: list[int] | None, layout: Padded | None) -> torch.Tensor:
    """The logits of four steps; before the second step, rows are reordered by `index`."""
    found = []
    with torch.inference_mode():
        _, state = model.start(SOURCE, layout)
        steps = FusedStep(model.decoder, PackedLinear().linear)
        for number, tokens in enumerate(TOKENS):
            if number == 1 and index is not None:
                state.reorder(torch.tensor(index))
            tokens = tokens if number == 0 or index is None else tokens.repeat(4)[: len(index)]
            if fused:
                logits = model.logits(steps(model.embed_next(tokens, state)[:, 0], state))
            else:
                logits, state = model.step(tokens, state)
            found.append(logits)
    return torch.cat(found)


@pytest.mark.parametrize("name", ["gpt", "llama", "gemma", "t5", "transformer"])
@pytest.mark.parametrize("layout", [None, Padded.from_lengths([4, 3, 2])])
@pytest.mark.parametrize("index", [None, [0, 2], [0, 0, 1, 1, 2, 2], [1, 1, 1, 0, 0, 0], [2, 2, 0], [1, 0, 1]])
def test_logits_are_the_same(name: str, layout: Padded | None, index: list[int] | None) -> None:
    model = family(name)
    expected = logits_of(model, fused=False, index=index, layout=layout)
    found = logits_of(model, fused=True, index=index, layout=layout)
    assert found.shape[-1] == VOCABULARY
    torch.testing.assert_close(found, expected, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt", "llama", "gemma", "transformer"])
def test_half_precision_logits_are_close(name: str) -> None:
    model = family(name).bfloat16()
    expected = logits_of(model, fused=False, index=None, layout=None)
    found = logits_of(model, fused=True, index=None, layout=None)
    torch.testing.assert_close(found.float(), expected.float(), atol=0.15, rtol=0.05)


def test_beams_do_not_copy_the_source() -> None:
    model = family("transformer")
    with torch.inference_mode():
        _, state = model.start(SOURCE, None)
        memory, keys = state.memory, state.cache.layers[0].cross_attention.key
        state.reorder(torch.tensor([0, 0, 1, 1, 2, 2]))
        assert state.rows_per_source == 2 and state.memory is memory
        assert state.cache.layers[0].cross_attention.key.data_ptr() == keys.data_ptr()
        state.reorder(torch.tensor([1, 0, 3, 3, 5, 4]))
        assert state.rows_per_source == 2 and state.memory is memory
        state.reorder(torch.tensor([0, 1, 5, 4]))  # the second source is finished
        assert state.rows_per_source == 2 and torch.equal(state.memory, memory[[0, 2]])
        state.expand_memory()
        assert state.rows_per_source == 1 and torch.equal(state.memory, memory[[0, 0, 2, 2]])
        assert state.cache.layers[0].cross_attention.key.shape[0] == 4


def test_supported_modules() -> None:
    model = family("t5")
    stack = model.decoder
    assert not supports_fused_step(stack), "gradients are wanted"
    with torch.inference_mode():
        assert supports_fused_step(stack)
        with torch.autocast("cpu", torch.bfloat16):
            assert not supports_fused_step(stack)
        hook = stack.layers[1].ffn.register_forward_hook(lambda *_: None)
        assert not supports_fused_step(stack)
        hook.remove()
        with recording.record(model):
            assert not supports_fused_step(stack)
        assert supports_fused_step(stack.eval())
        assert not supports_fused_step(stack.train())
        stack.eval().layers[0].ffn.outer = torch.nn.Sequential(torch.nn.Linear(12, 8))
        assert not supports_fused_step(stack)
