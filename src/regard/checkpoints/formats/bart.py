"""The files of a BART: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of, qkv
from regard.models.bart import BartConfig

LAYER: Table = {
    "attention.project.{p}": qkv("self_attn.", ("q_proj", "k_proj", "v_proj")),
    "attention.output.{p}": "self_attn.out_proj.{p}",
    "attention_residual.norm.{p}": "self_attn_layer_norm.{p}",
    "ffn.inner.{p}": "fc1.{p}",
    "ffn.outer.{p}": "fc2.{p}",
    "ffn_residual.norm.{p}": "final_layer_norm.{p}",
    "cross.project.query.{p}": "encoder_attn.q_proj.{p}",
    "cross.project.key.{p}": "encoder_attn.k_proj.{p}",
    "cross.project.value.{p}": "encoder_attn.v_proj.{p}",
    "cross.output.{p}": "encoder_attn.out_proj.{p}",
    "cross_residual.norm.{p}": "encoder_attn_layer_norm.{p}",
}
LAYERS = {(stack, stack): LAYER for stack in ("encoder.layers", "decoder.layers")}
HEADS: Mapping[str, Table] = {"final_logits_bias": {"final_logits_bias": "final_logits_bias"}}
COPIES = (
    "lm_head.weight",
    *(f"{prefix}{side}.embed_tokens.weight" for prefix in ("", "model.") for side in ("encoder", "decoder")),
)
NAMES = TensorNames(
    "model.",
    {
        "embedding.tokens.weight": "shared.weight",
        "embedding.positions.weight": "encoder.embed_positions.weight",
        "embedding.norm.{p}": "encoder.layernorm_embedding.{p}",
        "target_embedding.positions.weight": "decoder.embed_positions.weight",
        "target_embedding.norm.{p}": "decoder.layernorm_embedding.{p}",
        "encoder.norm.{p}": "encoder.layer_norm.{p}",
        "decoder.norm.{p}": "decoder.layer_norm.{p}",
    },
    LAYERS,
    HEADS,
    copies=dict.fromkeys(COPIES, "{base}shared.weight"),
)
RENAMED = {
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_dim",
    "hidden_act": "activation_function",
}
FIXED = {"tie_word_embeddings": True, "is_decoder": False}
DEFAULTS = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    for ours, default in (
        ("num_decoder_layers", "num_hidden_layers"),
        ("decoder_attention_heads", "num_attention_heads"),
        ("decoder_ffn_dim", "intermediate_size"),
    ):
        fields.setdefault(ours, fields[default])


FORMAT = FileFormat(
    keys_of(BartConfig, without=("norm_first", "layer_norm_eps"), **RENAMED),
    NAMES,
    FIXED,
    DEFAULTS,
    {"is_encoder_decoder": True},
    read=read,
    class_prefix="Bart",
    classes={(): "ForConditionalGeneration"},
    token_heads=False,
    task_heads={
        "SequenceClassification": {"pool.0": "classification_head.dense", "output": "classification_head.out_proj"}
    },
)
