"""config.json of models that came with code of their authors: the code is never run, and every key is understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints.configs import parse_config
from regard.errors import InputError

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37, "vocab_size": 53}
NOMIC_CODE = "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert"
NOMIC: dict[str, Any] = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "auto_map": {
        "AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig",
        "AutoModel": f"{NOMIC_CODE}.NomicBertModel",
        "AutoModelForMaskedLM": f"{NOMIC_CODE}.NomicBertForPreTraining",
    },
    "activation_function": "swiglu",
    "attn_pdrop": 0.0,
    "bos_token_id": None,
    "causal": False,
    "dense_seq_output": True,
    "embd_pdrop": 0.0,
    "fused_bias_fc": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": 24,
    "n_head": 4,
    "n_inner": 37,
    "n_layer": 3,
    "n_positions": 8192,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "parallel_block_tied_norm": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 500,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_weights": True,
    "summary_type": "cls_index",
    "torch_dtype": "float32",
    "type_vocab_size": 2,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "vocab_size": 53,
}
GTE: dict[str, Any] = {
    **SIZES,
    "model_type": "new",
    "architectures": ["NewModel"],
    "auto_map": {
        "AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig",
        "AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel",
    },
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "max_position_embeddings": 8192,
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "rope_scaling": {"factor": 8.0, "type": "ntk"},
    "rope_theta": 20000,
    "type_vocab_size": 1,
    "unpad_inputs": True,
    "use_memory_efficient_attention": True,
}
JINA: dict[str, Any] = {
    **SIZES,
    "_name_or_path": "jinaai/jina-bert-implementation",
    "model_type": "bert",
    "model_max_length": 8192,
    "architectures": ["JinaBertForMaskedLM"],
    "auto_map": {
        "AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig",
        "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel",
    },
    "attn_implementation": "torch",
    "emb_pooler": "mean",
    "feed_forward_type": "geglu",
    "hidden_act": "gelu",
    "max_position_embeddings": 8192,
    "position_embedding_type": "alibi",
    "type_vocab_size": 2,
}


PHI3: dict[str, Any] = {
    **SIZES,
    "model_type": "phi3",
    "architectures": ["Phi3ForCausalLM"],
    "auto_map": {
        "AutoConfig": "configuration_phi3.Phi3Config",
        "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
    },
    "attention_bias": False,
    "attention_dropout": 0.0,
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "sliding_window": 2047,
}


EUROBERT: dict[str, Any] = {
    **SIZES,
    "model_type": "eurobert",
    "architectures": ["EuroBertForMaskedLM"],
    "auto_map": {
        "AutoConfig": "configuration_eurobert.EuroBertConfig",
        "AutoModelForMaskedLM": "modeling_eurobert.EuroBertForMaskedLM",
    },
    "clf_pooling": "late",
    "head_dim": 6,
    "hidden_dropout": 0.0,
    "mask_token": "<|mask|>",
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "pad_token_id": 51,
    "pretraining_tp": 1,
    "rope_scaling": None,
    "rope_theta": 250000,
    "tie_word_embeddings": False,
}


def parse(document: dict[str, Any]) -> Any:
    return parse_config(document, Path("config.json"))


def test_nomic_bert() -> None:
    config = parse(NOMIC)
    assert (config.family, config.hidden_size, config.num_hidden_layers) == ("nomic-bert", 24, 3)
    assert (config.intermediate_size, config.max_position_embeddings, config.rope_theta) == (37, 8192, 500)
    assert (config.hidden_act, config.layer_norm_eps) == ("silu", 1e-12)


def test_both_names_of_a_key() -> None:
    assert parse(NOMIC | {"hidden_size": 24, "head_dim": 6, "max_position_embeddings": 2048}) == parse(NOMIC)
    with pytest.raises(InputError, match="n_embd is 24, but hidden_size is 48"):
        parse(NOMIC | {"hidden_size": 48})
    with pytest.raises(InputError, match="rotary_emb_base differs from rope_theta"):
        parse(NOMIC | {"rope_parameters": {"rope_theta": 70.0, "rope_type": "default"}})


def test_gte_with_scaled_positions() -> None:
    """The frequencies are those of the authors' formula: base * factor, and all divided by factor^(2 / head width)."""
    config = parse(GTE)
    rotary = config.new_rotary(6, 8192)
    assert config.family == "gte"
    assert rotary.frequencies.tolist() == pytest.approx([160000 ** (-k / 6) / 8 ** (2 / 6) for k in (0, 2, 4)])
    assert parse(GTE | {"rope_scaling": None}).rope_theta == 20000


def test_eurobert() -> None:
    config = parse(EUROBERT)
    assert (config.family, config.rope_theta, config.head_dim) == ("eurobert", 250000, 6)


def test_phi3() -> None:
    config = parse(PHI3)
    assert (config.family, config.sliding_window, config.max_position_embeddings) == ("phi3", 2047, 4096)


def test_jina_bert_is_not_read_as_a_bert() -> None:
    assert parse(JINA).family == "jina-bert"
    assert parse({**JINA, "position_embedding_type": "absolute", "auto_map": None}).family == "bert"


@pytest.mark.parametrize(
    ("document", "changes", "message"),
    [
        (NOMIC, {"activation_function": "gelu"}, "activation_function is 'gelu'"),
        (NOMIC, {"qkv_proj_bias": True}, "qkv_proj_bias is True"),
        (NOMIC, {"qkv_proj_bias": None}, "qkv_proj_bias: missing"),
        (NOMIC, {"layer_norm_epsilon": None}, "layer_norm_epsilon: missing"),
        (NOMIC, {"rotary_scaling_factor": 2.0}, "rotary_scaling_factor is 2.0"),
        (NOMIC, {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction is 0.5"),
        (NOMIC, {"rotary_emb_interleaved": True}, "rotary_emb_interleaved is True"),
        (NOMIC, {"prenorm": True}, "prenorm is True"),
        (NOMIC, {"num_experts": 8}, "num_experts is 8"),
        (NOMIC, {"head_dim": 8}, "head_dim is 8"),
        (NOMIC, {"router_aux_loss_coef": 0.1}, "'router_aux_loss_coef'.*does not know"),
        (NOMIC, {"auto_map": {"AutoModel": f"{NOMIC_CODE}.NomicVisionModel"}}, "names code to run"),
        (GTE, {"logn_attention_scale": True}, "logn_attention_scale is True"),
        (GTE, {"layer_norm_type": "rms_norm"}, "layer_norm_type is 'rms_norm'"),
        (GTE, {"pack_qkv": False}, "pack_qkv is False"),
        (GTE, {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        (GTE, {"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.3}}, "mixed_b.*expected type ntk"),
        (GTE, {"rope_scaling": {"type": "dynamic", "factor": 8.0}}, "rope_type"),
        (GTE, {"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute'"),
        (GTE, {"auto_map": {"AutoModel": "someone/new-impl--modeling.NewModel"}}, "names code to run"),
        (JINA, {"feed_forward_type": "reglu"}, "feed_forward_type is 'reglu'"),
        (PHI3, {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}, "longrope"),
        (EUROBERT, {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        (EUROBERT, {"hidden_dropout": 0.1}, "hidden_dropout is 0.1"),
        (EUROBERT, {"architectures": ["EuroBertForSequenceClassification"]}, "classifier_pooling is missing"),
        (EUROBERT, {"lora_rank": 4}, "'lora_rank'.*does not know"),
        (PHI3, {"attention_bias": True}, "attention_bias is True"),
        (PHI3, {"mup_width_multiplier": 8.0}, "'mup_width_multiplier'.*does not know"),
        (JINA, {"num_loras": 5}, "'num_loras'.*does not know"),
        (
            JINA,
            {"auto_map": {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}},
            "names code",
        ),
    ],
)
def test_what_changes_the_computation_is_refused(
    document: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        parse(document | changes)
