"""Fused layers of copies for inference: equal to the modules in every family, and unused where somebody looks on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.engine.batches import to_device
from regard.engine.precision import inference_copy
from regard.models.family import families
from regard.nn import recording
from regard.nn.fast.inference_layers import InferenceStack
from regard.nn.fast.int8_weights import supports_int8
from regard.nn.fast.packed_linear import supports_packing
from regard.nn.masks import Context, Packed
from regard.nn.stack import Stack
from regard.text import TokenIds
from tests.models.test_layers import tiny

TEXTS = [[5, 9, 11, 6, 7], [8], [4, 30, 22], [7, 7, 9, 1, 5, 6, 8, 3, 4]]
# An ELMo reads characters in layers of its own.
STACKED = [name for name in families() if name != "elmo" and hasattr(tiny(name), "states")]
EACH = pytest.mark.parametrize(
    ("name", "precision"), [(name, precision) for name in STACKED for precision in ("fp32", "int8")]
)


def copy_of(name: str, precision: str) -> tuple[Any, list[InferenceStack]]:
    if not (supports_packing() if precision == "fp32" else supports_int8()):
        pytest.skip("this CPU or this build of torch has no such products")
    twin = inference_copy(tiny(name), precision)
    return twin, [module for module in twin.modules() if isinstance(module, InferenceStack)]


def states(model: Any, texts: list[list[int]]) -> list[Tensor]:
    batch = to_device(TokenIds.from_lists(texts), torch.device("cpu"))
    return [state[: sum(map(len, texts))] for state in model.states(batch.ids, batch.layout)]


def modules_only(model: Any, stacks: list[InferenceStack], texts: list[list[int]]) -> list[Tensor]:
    """The states by calls of modules, as with a hook."""
    handles = [stack.layers[0].register_forward_hook(lambda *_: None) for stack in stacks]
    try:
        return states(model, texts)
    finally:
        for handle in handles:
            handle.remove()


@EACH
@torch.inference_mode()
def test_fused_layers_equal_modules(name: str, precision: str) -> None:
    twin, stacks = copy_of(name, precision)
    for texts in (TEXTS, TEXTS[:1], TEXTS[3:]):
        for found, expected in zip(states(twin, texts), modules_only(twin, stacks, texts), strict=True):
            # Norms of the root mean square take fewer operations, and are equal up to rounding.
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
    if name in ("bert", "gpt2", "mpnet", "electra", "gptj"):
        assert all(map(torch.equal, states(twin, TEXTS), modules_only(twin, stacks, TEXTS)))


def test_every_family_with_a_stack_is_fused() -> None:
    experts = {"mixtral", "qwen2-moe", "qwen3-moe"}
    apart = {"deberta-v2"}  # its first layer has a convolution
    for name in STACKED:
        _, stacks = copy_of(name, "fp32")
        fused = [layer is not None for stack in stacks for layer in stack.fused]
        assert (fused and all(fused)) or name in apart or (name in experts and not any(fused)), name


@EACH
@torch.inference_mode()
def test_recordings_see_all_layers(name: str, precision: str) -> None:
    twin, _ = copy_of(name, precision)
    expected = states(twin, TEXTS)
    with recording.record(twin) as tape:
        found = states(twin, TEXTS)
    assert len(tape.calls) == len(next(module for module in twin.modules() if isinstance(module, Stack)).layers)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


@torch.inference_mode()
def test_selected_positions_and_edits() -> None:
    twin, (stack,) = copy_of("bert", "fp32")
    layout, rows = Packed.from_lengths([3, 5]), torch.tensor([0, 4, 7])
    x = torch.randn(8, 16)
    whole = stack(x, layout)
    torch.testing.assert_close(stack(x, Context(layout, output_positions=rows)), whole[rows], atol=1e-5, rtol=1e-5)
    with recording.record(twin, edit=lambda weights, site: weights * 0):
        assert not torch.allclose(stack(x, layout), whole)
    assert torch.equal(stack(x, layout), whole)


@torch.inference_mode()
def test_fillers_do_not_change_a_text() -> None:
    model = tiny("bert")
    plain = model(torch.tensor(TEXTS[0]), Packed.from_lengths([5]))
    layout = Packed((5, 3), torch.tensor([0, 5, 8], dtype=torch.int32), torch.tensor([0, 1, 2, 3, 4, 0, 1, 2]), 5, 1)
    filled = model(torch.tensor([*TEXTS[0], 0, 0, 0]), layout)
    torch.testing.assert_close(filled[:5], plain, atol=1e-6, rtol=1e-6)
