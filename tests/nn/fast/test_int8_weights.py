"""Matrices in 8 bits: products near those in float32, whichever kernels there are, and models that use them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.engine.precision import decoding_copy
from regard.errors import InputError
from regard.models.family import build
from regard.models.gpt2 import GptConfig
from regard.models.llama import LlamaConfig
from regard.nn.fast import int8_weights
from regard.nn.fast.int8_weights import Int8Weight, has_int8_weights, quantize_weights

PRODUCTS = [int8_weights._fbgemm_product, int8_weights.onednn_int8_product, None]


def only(product: Callable[..., Any] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this be the only product with kernels that works."""
    works = int8_weights._works
    if product is not None and not works(product):
        pytest.skip("not on this CPU")
    monkeypatch.setattr(int8_weights, "_works", lambda make: make is product)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("rows", [1, 2, 70])
def test_products(product: Callable[..., Any] | None, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    only(product, monkeypatch)
    matrix, bias = torch.randn(96, 160), torch.randn(96)
    x = torch.randn(rows, 160) * torch.logspace(-2, 2, rows)[:, None] + 0.5
    x[0] = 0
    found = F.linear(x, Int8Weight.of(matrix), bias)
    expected = F.linear(x, matrix, bias)
    assert torch.allclose(found[0], bias, atol=1e-5), "a row of zeros"
    for row in range(1, rows):
        assert relative_error(found[row] - bias, expected[row] - bias) < 0.03
    assert F.linear(x.view(1, rows, 160), Int8Weight.of(matrix)).shape == (1, rows, 96)


def test_rows_do_not_depend_on_their_neighbors() -> None:
    matrix, x = Int8Weight.of(torch.randn(64, 96)), torch.randn(5, 96)
    several = F.linear(x, matrix)
    x[1:] *= 1000
    assert torch.allclose(F.linear(x, matrix)[0], several[0], rtol=1e-6, atol=1e-6)


def test_other_operations_see_the_values() -> None:
    plain = torch.randn(70, 64)
    matrix = Int8Weight.of(plain)
    values = matrix.dequantize()
    assert (values - plain).abs().max() <= plain.abs().max() / 127
    ids = torch.tensor([[3, 69], [0, 3]])
    assert torch.equal(F.embedding(ids, matrix), values[ids])
    assert torch.equal(matrix[ids], values[ids])
    assert torch.equal(matrix.T @ torch.eye(70), values.T @ torch.eye(70))
    assert type(matrix + 1) is Tensor and torch.equal(matrix + 1, values + 1)
    assert matrix.shape == (70, 64) and matrix.dtype == torch.float32


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_decoder_in_8_bits(family: str, tied: bool, randomized: Callable[..., nn.Module]) -> None:
    sizes: dict[str, Any] = {
        **{"vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"intermediate_size": 128, "max_position_embeddings": 64},
    }
    config = LlamaConfig(**sizes, num_key_value_heads=2, tie_word_embeddings=tied)
    model = randomized(build(GptConfig(**sizes) if family == "gpt2" else config), std=0.1).eval()
    small = decoding_copy(model, "int8")
    assert decoding_copy(model, "int8") is small and decoding_copy(model, "fp32") is model
    assert has_int8_weights(small) and not has_int8_weights(model)
    ids = torch.arange(2, 12)[None]
    with torch.inference_mode():
        expected, found = model.logits(model(ids)), small.logits(small(ids))
        assert 0 < relative_error(found, expected) < 0.05
        logits, state = small.start(ids[:, :6])
        for position in range(6, 10):
            assert relative_error(logits, found[:, position - 1]) < 0.03, "cached and not"
            logits, state = small.step(ids[:, position], state)
        with regard.record(small) as tape:
            small(ids)
    assert len(tape.attention()) == 2


def test_generation_in_8_bits() -> None:
    model, tokenizer = regard.load("regard-gpt", dtype=torch.int8)
    assert has_int8_weights(model)
    greedy: dict[str, Any] = {"max_new_tokens": 8, "temperature": 0.0, "device": "cpu"}
    loaded = regard.generate("The capital of France", model=(model, tokenizer), **greedy).texts[0].text
    assert loaded == regard.generate("The capital of France", precision="int8", **greedy).texts[0].text
    assert (
        regard.generate("The capital of France", precision="int8", num_beams=3, max_new_tokens=8, device="cpu")
        .texts[0]
        .text
    )
    full = regard.next_token("The capital of France is", targets=["Paris"], device="cpu")
    small = regard.next_token("The capital of France is", targets=["Paris"], precision="int8", device="cpu")
    assert small.targets["Paris"] == pytest.approx(full.targets["Paris"], rel=0.2)


def test_an_encoder_is_refused() -> None:
    with pytest.raises(InputError, match="models that generate text, and this is a BERT"):
        regard.load("regard-bert", dtype=torch.int8)


def test_tied_matrices_stay_tied() -> None:
    model = nn.ModuleDict({"a": nn.Embedding(100, 64), "b": nn.Linear(64, 100, bias=False), "c": nn.Linear(4, 4)})
    model["b"].weight = model["a"].weight
    quantize_weights(model)
    assert model["a"].weight is model["b"].weight and isinstance(model["a"].weight, Int8Weight)
    assert not isinstance(model["c"].weight, Int8Weight), "small matrices stay as they are"
    assert copy.deepcopy(model["c"].weight).shape == (4, 4)
