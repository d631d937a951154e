"""Precision: copies compute what the model computes, follow its weights, and leave it as it is."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from regard.engine import precision as tested
from regard.engine.precision import PrecisionChoice, compare_precisions, inference_copy, resolve_precision
from regard.engine.tuning import CpuSettings
from regard.errors import InputError
from regard.models import Bert, BertConfig, Elmo, ElmoConfig, Gpt, GptConfig
from regard.nn.fast.inference_layers import Int8Linear, OneDnnLinear
from regard.nn.fast.int8_weights import int8_range, quantize_rows
from regard.nn.fast.packed_linear import supports_packing
from regard.nn.masks import Packed

CPU = torch.device("cpu")
SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
LAYOUT = Packed.from_lengths([3, 17, 1, 40])
IDS = torch.arange(61) % 50


@pytest.fixture
def bert() -> Bert:
    model = Bert(BertConfig(vocab_size=50, max_position_embeddings=64, **SHAPE), output_heads=()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


@torch.inference_mode()
def test_packed_weights_compute_the_same(bert: Bert) -> None:
    twin = inference_copy(bert, "fp32")
    torch.testing.assert_close(twin(IDS, LAYOUT), bert(IDS, LAYOUT), atol=1e-5, rtol=1e-5)
    assert twin.embedding is bert.embedding  # what need not be converted is shared
    assert inference_copy(bert, "fp32") is twin
    if supports_packing():
        assert isinstance(twin.encoder.layers[0].ffn.inner, OneDnnLinear)
        assert isinstance(bert.encoder.layers[0].ffn.inner, nn.Linear)


@torch.inference_mode()
def test_int8_is_close_and_does_not_depend_on_the_batch(bert: Bert) -> None:
    if not int8_range():
        pytest.skip("this CPU has no 8-bit products")
    twin, expected = inference_copy(bert, "int8"), bert(IDS, LAYOUT)
    found = twin(IDS, LAYOUT)
    assert torch.cosine_similarity(found, expected, dim=-1).min() > 0.99
    assert not torch.equal(found, expected)
    alone = twin(IDS[3:20], Packed.from_lengths([17]))
    torch.testing.assert_close(found[3:20], alone, atol=5e-2, rtol=0)


def test_int8_linear_equals_its_formula() -> None:
    if not int8_range():
        pytest.skip("this CPU has no 8-bit products")
    linear, x = nn.Linear(96, 40), torch.randn(7, 96) * 3 + 1
    quantized, step, minimum = quantize_rows(x)
    restored = minimum + step * quantized[:, :96].float()  # the bytes of step and minimum follow
    assert (restored - x).abs().max() <= step.max() * 0.51
    scale = linear.weight.abs().amax(1, keepdim=True) / int8_range()
    expected = restored @ ((linear.weight / scale).round() * scale).T + linear.bias
    with torch.inference_mode():
        found = Int8Linear(linear)(x)
        activated = Int8Linear(linear, "gelu")(x)
    torch.testing.assert_close(found, expected.detach(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(activated, nn.functional.gelu(found), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_copy_follows_the_weights(bert: Bert, precision: str) -> None:
    def hidden() -> torch.Tensor:
        with torch.inference_mode():
            return inference_copy(bert, precision)(IDS, LAYOUT)

    before = hidden()
    bert.train()
    assert inference_copy(bert, precision) is bert
    bert.eval()
    optimizer = torch.optim.AdamW(bert.parameters(), lr=0.1, fused=True)
    bert(IDS, LAYOUT).pow(2).sum().backward()
    optimizer.step()
    assert (hidden() - before).abs().max() > 0.01
    with torch.inference_mode():
        torch.testing.assert_close(hidden(), bert(IDS, LAYOUT), atol=0.2 if precision == "int8" else 1e-4, rtol=0)


@torch.inference_mode()
def test_other_families() -> None:
    gpt = Gpt(GptConfig(vocab_size=50, max_position_embeddings=64, **SHAPE)).eval()
    torch.testing.assert_close(inference_copy(gpt, "fp32")(IDS, LAYOUT), gpt(IDS, LAYOUT), atol=1e-4, rtol=1e-4)
    elmo = Elmo(ElmoConfig(vocab_size=50, hidden_size=8, num_hidden_layers=2)).eval()
    assert inference_copy(elmo, "fp32") is elmo  # it has no Transformer layers


def test_a_copy_goes_with_its_model(bert: Bert) -> None:
    other = copy.deepcopy(bert)
    inference_copy(other, "fp32")
    count = len(tested._copies)
    del other
    assert len(tested._copies) == count - 1


def test_resolve() -> None:
    assert resolve_precision(None, CPU) == "fp32"
    assert resolve_precision("auto", CPU) == "auto"  # whoever has a sample decides
    with pytest.raises(InputError, match=r"bf16 is for GPUs.*use fp32 or int8"):
        resolve_precision("bf16", CPU)
    with pytest.raises(InputError, match="int8 is for CPUs"):
        resolve_precision("int8", torch.device("meta"))
    with pytest.raises(InputError, match="unknown precision 'fp3'"):
        resolve_precision("fp3", CPU)


def test_without_8_bit_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "supports_int8", lambda: False)
    with pytest.raises(InputError, match="no fast 8-bit products"):
        resolve_precision("int8", CPU)


@pytest.mark.parametrize(
    ("seconds", "cosine", "choice"),
    [((2.0, 1.0), 0.99, "int8"), ((2.0, 1.0), 0.97, "fp32"), ((1.0, 2.0), 1.0, "fp32"), ((2.0, 1.0), None, "fp32")],
)
def test_auto(
    bert: Bert,
    monkeypatch: pytest.MonkeyPatch,
    seconds: tuple[float, float],
    cosine: float | None,
    choice: str,
) -> None:
    """Never a slower choice than fp32, and none that differs too much; NaN differs."""
    times = dict(zip(("fp32", "int8"), seconds, strict=True))
    monkeypatch.setattr(tested, "supports_int8", lambda: True)
    monkeypatch.setattr(tested, "stored_settings", lambda model, name, *, measured: CpuSettings(1, 64, times[name]))
    monkeypatch.setattr(tested, "inference_copy", lambda model, name: model)
    other = torch.tensor([[cosine, (1 - cosine**2) ** 0.5]]) if cosine is not None else torch.full((1, 2), torch.nan)
    found = compare_precisions(bert, lambda name: torch.tensor([[1.0, 0.0]]) if name == "fp32" else other)
    assert isinstance(found, PrecisionChoice)
    assert found.precision == choice
    assert found.reason
