"""What treats a model layer by layer reaches every layer of every family, or refuses the family by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from regard.engine import precision as precisions
from regard.engine import tuning
from regard.engine.precision import has_copy, inference_copy, resolve_precision
from regard.engine.tuning import measure
from regard.errors import InputError
from regard.models.family import build, can, describe_model, families, get_family
from regard.nn.attention import FusedProjection
from regard.nn.fast.int8_weights import supports_int8
from regard.nn.fast.packed_linear import supports_packing
from regard.nn.layer import Layer, layers_of
from regard.nn.stack import Stack
from regard.training.distributed.parallel import ShardedModel, blank_copy, choose_parallel
from regard.training.distributed.world import World
from regard.training.loop import enable_gradient_checkpointing

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    **{name: 40 for name in ("vocab_size", "source_size", "target_size")},
    **{name: 16 for name in ("hidden_size", "text_hidden_size", "projection_dim", "cell_size")},
    **{name: 2 for name in ("num_hidden_layers", "num_decoder_layers", "num_text_layers", "num_attention_heads")},
    **{name: 2 for name in ("decoder_attention_heads", "num_text_attention_heads", "num_key_value_heads")},
    **{name: 24 for name in ("intermediate_size", "decoder_ffn_dim", "text_intermediate_size")},
    **{name: 0.1 for name in ("dropout", "attention_dropout", "embedding_dropout", "activation_dropout")},
    **{"max_position_embeddings": 64, "head_dim": 8, "rotary_dim": 4, "image_size": (8, 8), "patch_size": (4, 4)},
    **{name: 1 for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")},
    **{"embedding_size": 16, "sliding_window_pattern": 2, "query_pre_attn_scalar": 8, "conv_kernel_size": 3},
    **{"sliding_window": 4, "global_attn_every_n_layers": 2, "attention_types": "global local", "position_buckets": 8},
}
RECURRENT = ("elmo", "seq2seq")
FAMILIES = list(families())
IDS = torch.tensor([[5, 9, 11, 6, 7], [8, 4, 30, 22, 3]])
PIXELS = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def tiny(name: str) -> Any:
    """A model of a family with two layers and random weights."""
    family = get_family(name)
    sizes = {field.name: SIZES[field.name] for field in fields(family.config_class) if field.name in SIZES}
    torch.manual_seed(0)
    model = build(family.config_class(**{**sizes, "family": name}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


def output(model: Any) -> Tensor:
    """What a model computes with all its layers, as one tensor."""
    if can(model, "image-text"):
        return torch.cat([model.encode_text(IDS), model.encode_image(PIXELS)])
    if can(model, "image"):
        return model(PIXELS)  # type: ignore[no-any-return]
    return model(IDS, IDS.flip(1)) if can(model, "encoder-decoder") else model(IDS)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_consists_of_layers(name: str) -> None:
    model = tiny(name)
    layers = layers_of(model)
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    assert all(isinstance(layer, Layer) for stack in stacks for layer in stack.layers)
    assert len(layers) == {"albert": 1, "elmo": 4, "seq2seq": 2}.get(name) or sum(len(one.layers) for one in stacks)
    assert [layer.width for layer in layers] == [16] * len(layers) and all(layer.shape for layer in layers)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_checkpointing_repeats_every_layer(name: str) -> None:
    model, calls = tiny(name).train(), Counter[int]()
    for number, layer in enumerate(layers_of(model)):

        def counted(*args: Any, _forward: Any = layer.forward, _number: int = number, **options: Any) -> Any:
            calls[_number] += 1
            return _forward(*args, **options)

        layer.forward = counted  # type: ignore[method-assign]

    def gradients() -> list[Tensor | None]:
        calls.clear()
        model.zero_grad()
        torch.manual_seed(3)
        output(model).square().sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    plain, once = gradients(), dict(calls)
    assert set(once) == set(range(len(layers_of(model))))
    enable_gradient_checkpointing(model)
    for found, expected in zip(gradients(), plain, strict=True):
        assert (found is None) == (expected is None) and (found is None or torch.equal(found, expected))
    assert dict(calls) == {number: 2 * count for number, count in once.items()}


def test_gradient_checkpointing_needs_layers() -> None:
    with pytest.raises(InputError, match="no layers"):
        enable_gradient_checkpointing(nn.Linear(2, 2))


@pytest.fixture
def single_process_group(tmp_path: Path) -> Iterator[None]:
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("single_process_group")
@pytest.mark.parametrize("name", FAMILIES)
def test_fsdp_divides_every_layer(name: str) -> None:
    from torch.distributed.fsdp import FSDPModule

    model = tiny(name)
    if name in RECURRENT or name == "clip":
        with pytest.raises(InputError, match="recurrent layers" if name in RECURRENT else "a single number"):
            choose_parallel("fsdp", model, optimizer="adamw", world=World(0, 2, 0), device=CPU)
        return
    assert choose_parallel("fsdp", model, optimizer="adamw", world=World(0, 2, 0), device=CPU)[0] == "fsdp"
    expected = output(model)
    sharded = ShardedModel(model, model, blank_copy(model), world=World(0, 1, 0), device=CPU, dtype=None)
    assert all(isinstance(layer, FSDPModule) for layer in layers_of(model))
    found = output(model)
    assert torch.equal(found, expected)
    found.sum().backward()
    gathered = sharded.gather()
    assert gathered is not None and torch.equal(output(gathered), expected)


KINDS = {type(layer): name for name in reversed(FAMILIES) for layer in layers_of(tiny(name))}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_layer_compiles(kind: type[Layer]) -> None:
    torch._dynamo.reset()
    model = tiny(KINDS[kind])
    expected = output(model)
    for layer in layers_of(model):
        layer.compile(backend="eager")
    torch.testing.assert_close(output(model), expected)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_copies_for_a_cpu_convert_every_layer(name: str, precision: str) -> None:
    if not (supports_packing() if precision == "fp32" else supports_int8()):
        pytest.skip("this CPU or this build of torch has no such products")
    model = tiny(name)
    if name in RECURRENT and precision == "int8":
        for refused in (lambda: inference_copy(model, "int8"), lambda: resolve_precision("int8", CPU, model)):
            with pytest.raises(InputError, match=f"{describe_model(model)} has no copy"):
                refused()
        return
    twin = inference_copy(model, precision)
    if name in RECURRENT:
        assert twin is model and not has_copy(model, precision)
        return
    assert not any(
        type(module) in (nn.Linear, FusedProjection) for layer in layers_of(twin) for module in layer.modules()
    )
    expected, found = output(model), output(twin)
    if precision == "fp32":
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    else:
        assert torch.cosine_similarity(found.flatten(), expected.flatten(), dim=0) > 0.98


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_bf16_copies_convert_every_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precisions, "supports_bf16", lambda device: True)
    model = tiny(name)
    if name in (*RECURRENT, "vit", "deit", "clip"):
        assert inference_copy(model, "bf16") is model and resolve_precision(None, CPU, model) == "fp32"
        with pytest.raises(InputError, match=f"{describe_model(model)} has no copy"):
            resolve_precision("bf16", CPU, model)
        return
    twin = inference_copy(model, resolve_precision(None, CPU, model))
    assert {parameter.dtype for layer in layers_of(twin) for parameter in layer.parameters()} == {torch.bfloat16}
    found, expected = output(twin).float().flatten(), output(model).flatten()
    assert torch.cosine_similarity(found, expected, dim=0) > 0.98


@pytest.mark.parametrize("name", FAMILIES)
def test_every_layer_is_measured_on_a_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "CANDIDATES", (64,))
    layers = layers_of(tiny(name))
    for layer in layers:
        assert 0 < measure([layer], 1).seconds < 1
    assert 0 < measure(layers, 1).seconds < 1
