"""Weights in 8 bits: the error of a round trip, the folder, damaged scales, and what other libraries make of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import regard
from regard.checkpoints.storage import SCALE, dequantize, quantize, write_compact
from regard.errors import InputError
from regard.models import Bert, BertConfig

SMALL = BertConfig(
    vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
    max_position_embeddings=8,
)  # fmt: skip


@given(st.integers(0, 2**32), st.sampled_from([(3, 5), (1, 1), (4, 3, 2, 2), (0, 3)]), st.floats(-30, 30))
def test_no_value_is_off_by_more_than_half_a_step(seed: int, shape: tuple[int, ...], exponent: float) -> None:
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 10**exponent
    stored = quantize({"weight": weights})
    assert stored["weight"].dtype == torch.int8 and stored["weight" + SCALE].shape == shape[:1]
    found = dequantize(stored, Path())["weight"]
    step = weights.flatten(1).abs().amax(1, keepdim=True) / 127 if weights.numel() else torch.zeros(0, 1)
    assert found.shape == weights.shape
    assert ((found - weights).flatten(1).abs() <= step * 0.5001).all()


def test_vectors_stay_in_floating_point_and_empty_rows_stay_empty() -> None:
    tensors = {"bias": torch.randn(3), "zeros": torch.zeros(2, 4), "large": torch.tensor([1e6]), "ids": torch.arange(3)}
    stored = quantize(tensors)
    assert {name: tensor.dtype for name, tensor in stored.items()} == {
        "bias": torch.float16, "zeros": torch.int8, "zeros.scale": torch.float32, "large": torch.float32,
        "ids": torch.int64,
    }  # fmt: skip
    assert dequantize(stored, Path())["zeros"].tolist() == [[0.0] * 4] * 2
    with pytest.raises(InputError, match="weight has values that are not finite"):
        quantize({"weight": torch.tensor([[1.0, float("nan")]])})


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A model folder, and the same in 8 bits."""
    torch.manual_seed(0)
    regard.save(Bert(SMALL), tmp_path / "model")
    write_compact(tmp_path / "model", tmp_path / "stored", storage="int8", files={"README.md": b"A model card."})
    return tmp_path / "model", tmp_path / "stored"


def test_a_folder_in_eight_bits_is_loaded_like_every_other(folders: tuple[Path, Path], tmp_path: Path) -> None:
    original, stored = (regard.load(folder)[0] for folder in folders)
    assert (folders[1] / "model.safetensors").stat().st_size < 0.35 * (folders[0] / "model.safetensors").stat().st_size
    for (name, before), after in zip(original.state_dict().items(), stored.state_dict().values(), strict=True):
        assert after.dtype == torch.float32
        torch.testing.assert_close(after, before, atol=float(before.abs().max()) / 250 + 1e-6, rtol=1e-3, msg=name)
    assert json.loads((folders[1] / "checksums.json").read_text()).keys() >= {"model.safetensors", "README.md"}
    regard.save(stored, tmp_path / "saved")
    tensors = load_file(tmp_path / "saved" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert "quantization_config" not in json.loads((tmp_path / "saved" / "config.json").read_text())
    for name, tensor in regard.load(tmp_path / "saved")[0].state_dict().items():
        assert torch.equal(tensor, stored.state_dict()[name])


def test_transformers_refuses_the_folder_instead_of_misreading_it(folders: tuple[Path, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="quant_method"):
        transformers.AutoModel.from_pretrained(folders[1])


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (None, "word_embeddings.weight is stored in 8 bits without its scales"),
        (torch.ones(49), r"of shape \(49,\); expected a floating point scale for each row"),
        (torch.ones(50, 64), "expected a floating point scale for each row"),
        (torch.ones(50, dtype=torch.int32), "torch.int32 of shape"),
        (torch.full((50,), float("nan")), "not positive and finite"),
        (torch.full((50,), float("inf")), "not positive and finite"),
        (torch.zeros(50), "not positive and finite"),
        (-torch.ones(50), "not positive and finite"),
    ],
)
def test_damaged_scales_are_refused(folders: tuple[Path, Path], scale: torch.Tensor | None, message: str) -> None:
    folder = folders[1]
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("word_embeddings.weight" + SCALE))
    del tensors[name]
    save_file({**tensors, **({} if scale is None else {name: scale})}, folder / "model.safetensors")
    with pytest.raises(InputError, match="does not match checksums"):
        regard.load(folder)
    (folder / "checksums.json").unlink()
    with pytest.raises(InputError, match=message):
        regard.load(folder)
