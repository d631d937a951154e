"""The files of a ViT: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, qkv
from regard.checkpoints.formats.bert import POOLER

BASE = {
    "embedding.cls": "embeddings.cls_token",
    "embedding.positions": "embeddings.position_embeddings",
    "embedding.project.{p}": "embeddings.patch_embeddings.projection.{p}",
    "encoder.norm.{p}": "layernorm.{p}",
}

LAYERS: dict[tuple[str, str], Table] = {
    ("encoder.layers", "encoder.layer"): {
        "attention.project.{p}": qkv("attention.attention.", ("query", "key", "value")),
        "attention.output.{p}": "attention.output.dense.{p}",
        "attention_residual.norm.{p}": "layernorm_before.{p}",
        "ffn.inner.{p}": "intermediate.dense.{p}",
        "ffn.outer.{p}": "output.dense.{p}",
        "ffn_residual.norm.{p}": "layernorm_after.{p}",
    }
}
HEADS = {"pooler": POOLER, "classifier": {"classifier.{p}": "classifier.{p}"}}
NAMES = TensorNames("vit.", BASE, LAYERS, HEADS)
KEYS = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "image_size": "image_size",
    "patch_size": "patch_size",
    "num_channels": "num_channels",
    "hidden_act": "hidden_act",
    "layer_norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}


def architecture(output_heads: Collection[str]) -> str:
    return "ViTForImageClassification" if "classifier" in output_heads else "ViTModel"


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    for name in ("image_size", "patch_size"):
        if isinstance(fields.get(name), int):
            fields[name] = [fields[name]] * 2
    labels = document.get("id2label")
    fields["num_labels"] = document.get("num_labels", len(labels) if isinstance(labels, dict) else 2)


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for key in ("image_size", "patch_size"):
        height, width = document[key]
        document[key] = height if height == width else [height, width]
    document["id2label"] = {str(i): f"LABEL_{i}" for i in range(fields["num_labels"])}
    document["label2id"] = {f"LABEL_{i}": i for i in range(fields["num_labels"])}


FORMAT = FileFormat(
    KEYS,
    architecture,
    lambda config: NAMES,
    {"qkv_bias": True},
    read=read,
    write=write,
    class_prefix="ViT",
)
