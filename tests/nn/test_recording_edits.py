"""Edits: head ablation, changed maps, error locations, nested recordings, and cleanup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.nn.recording import Site, ablate_heads, record

FAMILIES = ["bert", "gpt", "t5", "transformer", "vit"]
Maker = Callable[..., Any]


def main_part(name: str) -> str:
    return "encoder" if name in ("bert", "vit") else "decoder"


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("name", FAMILIES)
def test_head_ablation_zeroes_the_output_of_the_head(
    device: torch.device, sample: Maker, name: str, kind: str, packed: bool
) -> None:
    s = sample(name, device)
    if (packed and s.packed is None) or (kind == "cross" and not s.target_lengths):
        return
    batch, part = s.packed if packed else s.padded, main_part(name)
    block = getattr(s.model, part).layers[1]
    attention = block.attention if kind == "self" else block.cross
    before = s.model(*batch)

    def zero_head(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        heads = inputs[0].unflatten(-1, (2, -1)).clone()
        heads[..., 1, :] = 0
        return (heads.flatten(-2),)

    hook = attention.output.register_forward_pre_hook(zero_head)
    expected = s.model(*batch)
    hook.remove()
    with record(s.model, edit=ablate_heads([(2, 1)], kind=kind, part=part)) as tape:
        got = s.model(*batch)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert (got - before).abs().max() > 1e-3
    assert torch.equal(s.model(*batch), before)
    changed = tape.attention(kind, part)[1]
    assert changed[:, 1].abs().sum() == 0 and changed[:, 0].abs().sum() > 0
    assert tape.attention(kind, part)[0][:, 1].abs().sum() > 0


def test_head_ablation_equals_a_head_mask(device: torch.device, sample: Maker) -> None:
    s = sample("bert", device)
    mask = torch.tensor([[1.0, 0.0], [0.0, 1.0]], device=device)
    with record(s.model, edit=ablate_heads({(1, 1), (-1, 0)})):
        one = s.model(*s.padded)
    with record(s.model, edit=lambda weights, site: weights * mask[site.layer - 1][:, None, None]):
        other = s.model(*s.padded)
    assert torch.equal(one, other)


def test_an_edit_receives_its_site(device: torch.device, sample: Maker) -> None:
    s = sample("t5", device)
    seen: list[tuple[Site, tuple[int, ...]]] = []

    def record_site(weights: Tensor, site: Site) -> Tensor:
        seen.append((site, tuple(weights.shape)))
        return weights

    with record(s.model, edit=record_site):
        s.model(*s.padded)
    encoder = [(Site("encoder", "self", i), (4, 2, 5, 5)) for i in (1, 2)]
    decoder = [
        pair
        for i in (1, 2, 3)
        for pair in ((Site("decoder", "self", i), (4, 2, 4, 4)), (Site("decoder", "cross", i), (4, 2, 4, 5)))
    ]
    assert seen == encoder + decoder


def test_edit_applies_only_to_its_kind_and_part(device: torch.device, sample: Maker) -> None:
    s = sample("transformer", device)
    with record(s.model, edit=ablate_heads([(1, 0)], kind="self", part="encoder")) as tape:
        s.model(*s.padded)
    assert tape.attention("self", "encoder")[0][:, 0].abs().sum() == 0
    assert tape.attention("self", "decoder")[0][:, 0].abs().sum() > 0
    assert tape.attention("cross", "decoder")[0][:, 0].abs().sum() > 0


def test_an_edited_map_is_used_and_recorded(device: torch.device, sample: Maker) -> None:
    """With uniform weights, each head outputs the mean of its values."""
    s = sample("vit", device)
    outputs = []
    s.model.encoder.layers[0].attention.register_forward_hook(lambda *call: outputs.append(call[-1]))
    with record(s.model, edit=lambda weights, site: torch.full_like(weights, 1 / weights.shape[-1])) as tape:
        s.model(*s.padded)
    block = s.model.encoder.layers[0]
    inside = block.attention_residual.norm(tape.hidden()[0])
    value = block.attention.project(inside, inside)[2]
    torch.testing.assert_close(outputs[0], block.attention.output(value.mean(1, keepdim=True)).expand_as(outputs[0]))
    assert all(torch.equal(weights, torch.full_like(weights, 0.2)) for weights in tape.attention())


def test_gradients_flow_through_an_edit(device: torch.device, sample: Maker) -> None:
    """The gradient of the output with respect to a gate of one on a head."""
    s = sample("bert", device)
    gate = torch.ones(2, 2, device=device, requires_grad=True)
    with record(s.model, edit=lambda weights, site: weights * gate[site.layer - 1][:, None, None]):
        output = s.model(*s.padded)
    (slope,) = torch.autograd.grad(output.pow(2)[..., 0].sum(), gate)
    assert slope.shape == (2, 2) and slope.abs().min() > 0


@pytest.mark.parametrize("heads", [[(1, 2)], [(2, -1)], [(1, 0), (1, 7)]])
def test_missing_head_is_rejected(device: torch.device, sample: Maker, heads: list[tuple[int, int]]) -> None:
    s = sample("bert", device)
    told = f"no head {heads[-1][1]}: the self attention has heads 0 to 1"
    with pytest.raises(ValueError, match=told), record(s.model, edit=ablate_heads(heads)):
        s.model(*s.padded)


@pytest.mark.parametrize("packed", [False, True])
def test_edit_with_wrong_shape_is_rejected(device: torch.device, sample: Maker, packed: bool) -> None:
    s = sample("gpt", device)
    told = r"the edit at .*layer=1.* returned shape \(\d, 1, .*\), expected \(\d, 2, "
    with pytest.raises(ValueError, match=told), record(s.model, edit=lambda weights, site: weights[:, :1]):
        s.model(*(s.packed if packed else s.padded))


def test_nested_recordings_of_the_same_model(device: torch.device, sample: Maker) -> None:
    s = sample("bert", device)
    with record(s.model) as outer:
        s.model(*s.padded)
        with record(s.model) as inner:
            s.model(*s.padded)
        s.model(*s.padded)
    assert [len(r) for r in outer.calls.values()] == [3, 3] and [len(r) for r in inner.calls.values()] == [1, 1]
    torch.testing.assert_close(outer.calls[Site("encoder", "self", 2)][1].weights(), inner.attention()[1])


def test_recording_of_a_part_inside_a_recording_of_the_model(device: torch.device, sample: Maker) -> None:
    s = sample("bert", device)
    with record(s.model) as outer, record(s.model.encoder) as inner:
        s.model(*s.padded)
    for one, other in zip(outer.attention("self", "encoder"), inner.attention("self"), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(outer.hidden("encoder"), inner.hidden(), strict=True):
        assert torch.equal(one, other)


def test_outer_tape_contains_the_result_of_an_inner_edit(device: torch.device, sample: Maker) -> None:
    s = sample("bert", device)
    with record(s.model) as outer, record(s.model, edit=ablate_heads([(1, 1)])) as inner:
        s.model(*s.padded)
    assert inner.attention()[0][:, 1].abs().sum() == 0
    for one, other in zip(outer.attention(), inner.attention(), strict=True):
        torch.testing.assert_close(one, other)


def test_nested_edits_all_apply(device: torch.device, sample: Maker) -> None:
    s = sample("bert", device)
    with record(s.model, edit=ablate_heads([(1, 0), (1, 1)])):
        expected = s.model(*s.padded)
    with record(s.model, edit=ablate_heads([(1, 0)])) as outer, record(s.model, edit=ablate_heads([(1, 1)])) as inner:
        got = s.model(*s.padded)
    torch.testing.assert_close(got, expected)
    assert inner.attention()[0].abs().sum() == 0
    assert outer.attention()[0][:, 0].abs().sum() == 0


def test_exception_restores_the_model(device: torch.device, sample: Maker) -> None:
    s = sample("bert", device)
    before = s.model(*s.padded)

    def fail(weights: Tensor, site: Site) -> Tensor:
        raise RuntimeError("in the edit")

    with record(s.model) as outer:
        with pytest.raises(RuntimeError, match="in the edit"), record(s.model, edit=fail):
            s.model(*s.padded)
        outer.calls.clear()
        assert torch.equal(s.model(*s.padded), before)
        assert [len(r) for r in outer.calls.values()] == [1, 1]
    with pytest.raises(RuntimeError, match="in the block"), record(s.model, edit=ablate_heads([(1, 0)])) as tape:
        raise RuntimeError("in the block")
    assert torch.equal(s.model(*s.padded), before)
    assert not tape.calls and not tape.states


def test_tape_is_limited_to_its_block_and_its_model(device: torch.device, sample: Maker) -> None:
    s, other = sample("bert", device), sample("bert", device)
    with record(s.model) as tape:
        s.model(*s.padded)
        other.model(*other.padded)
    s.model(*s.padded)
    assert [len(r) for r in tape.calls.values()] == [1, 1]
    assert all(len(states) == 1 for states in tape.states["encoder"].values())


@pytest.mark.parametrize("name", FAMILIES)
def test_half_precision_maps_are_close_to_full_precision(device: torch.device, sample: Maker, name: str) -> None:
    s = sample(name, device)
    with record(s.model) as full:
        s.model(*s.padded)
    s.model.to(torch.bfloat16)
    batch = tuple(a.to(torch.bfloat16) if isinstance(a, Tensor) and a.is_floating_point() else a for a in s.padded)
    with record(s.model) as half:
        assert s.model(*batch).dtype == torch.bfloat16
    place = "self", main_part(name)
    for one, other in zip(half.attention(*place), full.attention(*place), strict=True):
        torch.testing.assert_close(one.float(), other, atol=5e-2, rtol=0)
        torch.testing.assert_close(one.float().sum(-1), other.sum(-1), atol=1e-2, rtol=0)


def test_missing_layer_or_part_is_rejected(device: torch.device, sample: Maker) -> None:
    s = sample("bert", device)
    for layer in (99, 0, -3):
        told = f"no layer {layer}: the self attention has layers 1 to 2; 0 is the embeddings, which have no attention"
        with pytest.raises(ValueError, match=told), record(s.model, edit=ablate_heads([(layer, 0)])):
            pass
    with (
        pytest.raises(ValueError, match="does not have the self attention of the decoder"),
        record(s.model, edit=ablate_heads([(1, 0)], part="decoder")),
    ):
        pass
