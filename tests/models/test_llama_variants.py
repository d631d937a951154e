"""Settings of families built on Llama that would change the computation are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints.configs import parse_config
from regard.errors import InputError
from regard.models.family import build

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37, "vocab_size": 53}
DOCUMENT: dict[str, Any] = {**SIZES, "max_position_embeddings": 22, "num_key_value_heads": 2}


def load(model_type: str, **changes: Any) -> Any:
    return build(parse_config({**DOCUMENT, "model_type": model_type, **changes}, Path("config.json")))


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("granite", {"logits_scaling": 0}, "logits_scaling is 0"),
        ("granite", {"attention_multiplier": "high"}, "attention_multiplier"),
        ("olmo2", {"clip_qkv": 8.0}, "clip_qkv is 8.0"),
        ("smollm3", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers is .*each of 3 layers"),
        ("smollm3", {"no_rope_layers": [1, 2, 0]}, "no_rope_layers"),
        ("smollm3", {"no_rope_layer_interval": 0}, "no_rope_layer_interval is 0"),
        ("smollm3", {"layer_types": ["sliding_attention"] * 3}, "layer_types is"),
        ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise is 0.1"),
        ("mixtral", {"num_local_experts": 2, "num_experts_per_tok": 3}, "3 of 2 experts"),
        ("mixtral", {"num_local_experts": 10**6}, "num_local_experts is 1000000"),
        ("qwen2_moe", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("qwen2_moe", {"layer_types": ["sliding_attention"] * 3}, "layer_types is"),
        ("qwen2_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        ("qwen3_moe", {"num_experts": 4, "num_local_experts": 8}, "num_experts is 4, but num_local_experts is 8"),
        ("gpt_neox", {"rotary_pct": 0.4, "hidden_act": "swiglu"}, "hidden_act is 'swiglu'"),
        ("gpt_neox", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type"),
        ("modernbert", {"layer_types": ["full_attention"] * 2}, "layer_types should be"),
        ("modernbert", {"layer_types": ["chunked_attention"] * 3}, "layer_types should be"),
    ],
)
def test_what_changes_the_computation_is_refused(model_type: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(model_type, **changes)


def test_layers_without_positions() -> None:
    positions = [layer.attention.positions for layer in load("smollm3", no_rope_layer_interval=2).decoder.layers]
    assert [one is None for one in positions] == [False, True, False]
    default = load("smollm3", num_hidden_layers=5)
    assert [layer.attention.positions is None for layer in default.decoder.layers] == [False, False, False, True, False]


def test_layers_without_experts() -> None:
    model = load("qwen3_moe", decoder_sparse_step=2, num_experts=4, num_experts_per_tok=1)
    assert [hasattr(layer.ffn, "router") for layer in model.decoder.layers] == [False, True, False]
    model = load("qwen2_moe", mlp_only_layers=[0, 2], num_experts=4)
    assert [hasattr(layer.ffn, "router") for layer in model.decoder.layers] == [False, True, False]
