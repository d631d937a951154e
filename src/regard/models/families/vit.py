"""The Vision Transformer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from regard.models.families.bert import LARGE, POOLER, qkv
from regard.models.family import Checkpoint, Family, FileFormat, TensorNames

NAMES = TensorNames(
    "vit.",
    {
        "embedding.cls": "embeddings.cls_token",
        "embedding.positions": "embeddings.position_embeddings",
        "embedding.project.{p}": "embeddings.patch_embeddings.projection.{p}",
        "encoder.norm.{p}": "layernorm.{p}",
    },
    {
        ("encoder.layers", "encoder.layer"): {
            "attention.project.{p}": qkv("attention.attention.", ("query", "key", "value")),
            "attention.output.{p}": "attention.output.dense.{p}",
            "attended.norm.{p}": "layernorm_before.{p}",
            "ffn.inner.{p}": "intermediate.dense.{p}",
            "ffn.outer.{p}": "output.dense.{p}",
            "fed.norm.{p}": "layernorm_after.{p}",
        }
    },
    {"pooler": POOLER, "classifier": {"classifier.{p}": "classifier.{p}"}},
)


def tensor_names(config: Any) -> TensorNames:
    return NAMES


def architecture(heads: Collection[str]) -> str:
    return "ViTForImageClassification" if "classifier" in heads else "ViTModel"


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


FAMILY = Family(
    name="vit",
    title="a ViT",
    year=2020,
    description="encoder of image patches; head: classifier",
    model="regard.models.vit:Vit",
    config="regard.models.vit:VitConfig",
    capabilities=frozenset({"image", "pooling", "fine-tuning"}),
    heads=("pooler", "classifier"),
    checkpoints=(
        Checkpoint("google/vit-base-patch16-224", 86_567_656),
        Checkpoint("google/vit-large-patch16-224", 304_326_632, LARGE),
    ),
    file_format=FileFormat(
        {
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
        },
        architecture,
        tensor_names,
        {"qkv_bias": True},
        read=read,
        write=write,
    ),
)
