"""Gemma, Gemma 2 and Gemma 3: config.json of transformers 4 and 5, what is refused, caps and kinds of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints.configs import parse_config, write_config
from regard.errors import InputError
from regard.interpret.logit_attribution import check_pre_norm
from regard.models.family import build
from regard.models.gemma import GemmaConfig
from regard.models.gemma2 import Gemma2Config
from regard.models.gemma3_text import Gemma3TextConfig
from regard.nn.fast.fused_step import supports_fused_step

SIZES = {
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
LOCAL, GLOBAL = "sliding_attention", "full_attention"


def parse(model_type: str, **document: Any) -> Any:
    return parse_config({"model_type": model_type, **SIZES, **document}, Path("config.json"))


def test_rotary_positions_of_transformers_4_and_5_are_the_same() -> None:
    scaling = {"rope_type": "linear", "factor": 8.0}
    old = parse("gemma3_text", rope_theta=5000.0, rope_local_base_freq=70.0, rope_scaling=scaling)
    ropes = {GLOBAL: {"rope_theta": 5000.0, **scaling}, LOCAL: {"rope_theta": 70.0, "rope_type": "default"}}
    assert old == parse("gemma3_text", rope_parameters=ropes)
    assert (old.rope_theta, old.rope_type, old.rope_factor, old.rope_local_base_freq) == (5000.0, "linear", 8.0, 70.0)
    document = write_config(old, output_heads=(), dtype="float32")
    assert document["rope_parameters"] == ropes
    assert (document["rope_local_base_freq"], document["rope_scaling"]) == (70.0, scaling)
    assert document["architectures"] == ["Gemma3ForCausalLM"]
    frequencies = [layer.attention.positions.theta for layer in build(parse("gemma3_text")).decoder.layers]
    assert frequencies == [10000.0] * 4  # the sixth layer would be the first global one


def test_kinds_of_layers() -> None:
    config = parse("gemma2", sliding_window=3)
    assert [config.layer(number).window for number in range(4)] == [2, None, 2, None]
    config = parse("gemma3_text", sliding_window=3, layer_types=[LOCAL, LOCAL, GLOBAL, LOCAL])
    assert [config.layer(number).window for number in range(4)] == [2, 2, None, 2]
    assert config == parse("gemma3_text", sliding_window=3, sliding_window_pattern=3)
    assert parse("gemma3_text", layer_types=[LOCAL] * 4).sliding_window_pattern == 5
    assert write_config(Gemma3TextConfig(**SIZES), output_heads=(), dtype="float32")["layer_types"] == [LOCAL] * 4


def test_caps_can_be_absent() -> None:
    assert parse("gemma2").attn_logit_softcapping == 50.0
    uncapped = parse("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None)
    assert (uncapped.attn_logit_softcapping, uncapped.final_logit_softcapping) == (None, None)
    assert write_config(uncapped, output_heads=(), dtype="float32")["attn_logit_softcapping"] is None


def test_gelu_of_published_files_is_the_approximation() -> None:
    assert parse("gemma", hidden_act="gelu") == parse("gemma", hidden_act="gelu_pytorch_tanh")
    document = write_config(GemmaConfig(**SIZES), output_heads=(), dtype="float32")
    assert document["hidden_act"] == "gelu_pytorch_tanh"


@pytest.mark.parametrize(
    ("model_type", "document", "message"),
    [
        ("gemma3_text", {"use_bidirectional_attention": "yes"}, "use_bidirectional_attention"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        ("gemma3_text", {"rope_parameters": {LOCAL: {"rope_type": "yarn"}}}, "local layers cannot be scaled"),
        ("gemma2", {"layer_types": [LOCAL, GLOBAL, GLOBAL, LOCAL]}, "layer_types of a Gemma should be"),
        ("gemma2", {"layer_types": [LOCAL, GLOBAL]}, "2 entries for 4 layers"),
        ("gemma2", {"layer_types": []}, "0 entries for 4 layers"),
        ("gemma2", {"attn_logit_softcapping": "50"}, "attn_logit_softcapping"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
    ],
)
def test_unsupported_settings_are_refused_by_name(model_type: str, document: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(model_type, **document)


def test_caps_of_0_are_refused() -> None:
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        with pytest.raises(InputError, match="must be above 0"):
            build(Gemma2Config(**SIZES, **{name: 0.0}))


def test_new_models_start_with_a_gain_of_1_and_logits_stay_below_the_cap() -> None:
    torch.manual_seed(0)
    model = build(Gemma2Config(**SIZES, final_logit_softcapping=0.01)).eval()
    assert not model.decoder.norm.weight.any()
    with torch.no_grad():
        hidden = model(torch.tensor([[3, 1, 4]]))
        assert torch.allclose(hidden.square().mean(-1), torch.ones(1, 3), atol=1e-4)
        assert 0.001 < model.logits(hidden).abs().max() <= 0.01


def test_what_does_not_know_these_layers_refuses_them() -> None:
    model = build(Gemma2Config(**SIZES)).eval()
    with torch.inference_mode():
        assert not supports_fused_step(model.decoder)
        assert supports_fused_step(build(Gemma3TextConfig(**SIZES)).eval().decoder)
    with pytest.raises(InputError, match="final layer norm or RMS norm; this model has OffsetRMSNorm"):
        check_pre_norm(model)


def test_recording_does_not_change_the_output() -> None:
    torch.manual_seed(0)
    model = build(Gemma2Config(**SIZES)).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        plain = model(ids)
        with regard.record(model) as tape:
            recorded = model(ids)
    torch.testing.assert_close(recorded, plain)
    assert all(torch.allclose(one.sum(-1), torch.ones(1, 4, 5)) for one in tape.attention())
