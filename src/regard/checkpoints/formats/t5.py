"""The files of a T5: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of, qkv
from regard.models.t5 import T5Config


def _layer(ffn: str, *, gated: bool) -> Table:
    inner = (f"{ffn}.DenseReluDense.wi_0.weight", f"{ffn}.DenseReluDense.wi_1.weight")
    return {
        "attention.project.{p}": qkv("layer.0.SelfAttention.", ("q", "k", "v")),
        "attention.output.weight": "layer.0.SelfAttention.o.weight",
        "attention_residual.norm.weight": "layer.0.layer_norm.weight",
        "cross.project.query.weight": "layer.1.EncDecAttention.q.weight",
        "cross.project.key.weight": "layer.1.EncDecAttention.k.weight",
        "cross.project.value.weight": "layer.1.EncDecAttention.v.weight",
        "cross.output.weight": "layer.1.EncDecAttention.o.weight",
        "cross_residual.norm.weight": "layer.1.layer_norm.weight",
        "ffn.inner.weight": inner if gated else f"{ffn}.DenseReluDense.wi.weight",
        "ffn.outer.weight": f"{ffn}.DenseReluDense.wo.weight",
        "ffn_residual.norm.weight": f"{ffn}.layer_norm.weight",
    }


def tensor_names(config: Any) -> TensorNames:
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return TensorNames(
        "",
        {
            "embedding.tokens.weight": "shared.weight",
            "encoder.relative.table.weight": f"encoder.{bias}",
            "decoder.relative.table.weight": f"decoder.{bias}",
            "encoder.norm.weight": "encoder.final_layer_norm.weight",
            "decoder.norm.weight": "decoder.final_layer_norm.weight",
        },
        {
            ("encoder.layers", "encoder.block"): _layer("layer.1", gated=config.is_gated_act),
            ("decoder.layers", "decoder.block"): _layer("layer.2", gated=config.is_gated_act),
        },
        {"output": {"output.weight": "lm_head.weight"}},
        copies=dict.fromkeys(
            ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"), "shared.weight"
        ),
        buffers=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    )


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    if "hidden_act" in fields:  # "gated-gelu" means gated gelu_new, as in transformers
        name = str(fields["hidden_act"])
        fields["is_gated_act"] = name.startswith("gated-")
        fields["hidden_act"] = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")
    fields.setdefault("num_decoder_layers", fields["num_hidden_layers"])
    fields.setdefault("decoder_start_token_id", fields.get("pad_token_id", 0))
    if "scale_decoder_outputs" in document:
        fields["scale_decoder_outputs"] = document["scale_decoder_outputs"]


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    if fields["is_gated_act"]:
        activation = document["feed_forward_proj"]
        names = {"gelu_new": "gelu", "gelu": "gelu_python"}
        document["feed_forward_proj"] = f"gated-{names.get(activation, activation)}"


FORMAT = FileFormat(
    keys_of(
        T5Config,
        without=("is_gated_act",),
        hidden_size="d_model",
        head_dim="d_kv",
        num_hidden_layers="num_layers",
        num_attention_heads="num_heads",
        intermediate_size="d_ff",
        hidden_act="feed_forward_proj",
        layer_norm_eps="layer_norm_epsilon",
        dropout="dropout_rate",
        scale_decoder_outputs="tie_word_embeddings",
    ),
    tensor_names,
    {"is_decoder": False},
    written={"is_encoder_decoder": True},
    read=read,
    write=write,
    class_prefix="T5",
    classes={(): "ForConditionalGeneration"},
)
