"""Llama and its variants: config.json of transformers 4 and 5, what is refused, and the output layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints.configs import parse_config, write_config
from regard.errors import InputError
from regard.models.family import build
from regard.models.llama import LlamaConfig
from regard.models.qwen2 import Qwen2Config

SIZES = {
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
PATH = Path("config.json")


def parse(**document: Any) -> Any:
    return parse_config({"model_type": "llama", **SIZES, **document}, PATH)


def test_rotary_positions_of_transformers_4_and_5_are_the_same() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    old = parse(rope_theta=500000.0, rope_scaling={"type": "llama3", **scaling})
    new = parse(rope_parameters={"rope_theta": 500000, "rope_type": "llama3", **scaling})
    assert old == new and (old.rope_type, old.rope_factor, old.rope_original_positions) == ("llama3", 8.0, 32)
    assert parse(rope_theta=7.0, rope_scaling=None) == parse(rope_parameters={"rope_theta": 7.0})
    document = write_config(old, output_heads=("output",), dtype="float32")
    assert document["rope_theta"] == 500000.0 and document["rope_scaling"] == {"rope_type": "llama3", **scaling}
    assert document["architectures"] == ["LlamaForCausalLM"]


def test_several_end_tokens() -> None:
    config = parse(eos_token_id=[5, 7, 9])
    assert (config.eos_token_id, config.other_eos_token_id) == (5, (7, 9))
    assert write_config(config, output_heads=(), dtype="float32")["eos_token_id"] == [5, 7, 9]
    assert parse(eos_token_id=5).other_eos_token_id == ()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic'"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}, "rope_type 'longrope'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "mrope_section": [1]}}, "'mrope_section'"),
        ({"rope_parameters": [1]}, "rope_parameters should be an object"),
        ({"rope_parameters": {"rope_type": "linear", "factor": "2"}}, "rope_factor"),
        ({"eos_token_id": ["a"]}, "eos_token_id"),
        ({"pretraining_tp": 2}, "pretraining_tp is 2"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 2}, "layer_types"),
        ({"model_type": "phi3", "resid_pdrop": 0.1}, "resid_pdrop is 0.1"),
        ({"model_type": "lama"}, "llama"),
    ],
)
def test_unsupported_settings_are_refused_by_name(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(**document)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_key_value_heads": 3},
        {"head_dim": 7},
        {"num_attention_heads": 5},
        {"rope_factor": 0.0, "rope_type": "linear"},
    ],
)
def test_impossible_sizes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        build(LlamaConfig(**{**SIZES, **wrong}))


def test_windows_begin_after_the_first_layers() -> None:
    config = Qwen2Config(**SIZES, sliding_window=4, max_window_layers=1)
    assert [config.layer(number).window for number in range(2)] == [None, 3]
    with pytest.raises(InputError, match="cannot store sliding_window 4"):
        write_config(LlamaConfig(**SIZES, sliding_window=4), output_heads=(), dtype="float32")


def test_checkpoint_without_an_output_layer_predicts_no_tokens(tmp_path: Path) -> None:
    regard.save(build(LlamaConfig(**SIZES), output_heads=()), tmp_path)
    model, _ = regard.load(tmp_path)
    hidden = model(torch.tensor([[3, 1, 4]]))
    with pytest.raises(InputError, match="no output layer"):
        model.logits(hidden)
