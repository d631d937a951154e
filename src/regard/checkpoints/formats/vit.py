"""The files of a ViT: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of, qkv
from regard.checkpoints.formats.bert import POOLER, RENAMED
from regard.models.vit import VitConfig

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
KEYS = keys_of(VitConfig, without=("num_labels",), **RENAMED)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    labels = document.get("id2label")
    fields["num_labels"] = document.get("num_labels", len(labels) if isinstance(labels, dict) else 2)


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["id2label"] = {str(i): f"LABEL_{i}" for i in range(fields["num_labels"])}
    document["label2id"] = {f"LABEL_{i}": i for i in range(fields["num_labels"])}


FORMAT = FileFormat(
    KEYS,
    NAMES,
    {"qkv_bias": True},
    read=read,
    write=write,
    class_prefix="ViT",
    task_heads={"ImageClassification": {}},
)
