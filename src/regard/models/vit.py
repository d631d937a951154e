"""The Vision Transformer: an encoder of image patches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.models.bert import POOLER, Pooler
from regard.models.family import Checkpoint, Family, FileFormat, Table, TensorNames, qkv, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import PatchEmbedding
from regard.nn.masks import Padded
from regard.nn.stack import Stack
from regard.nn.training import normal_init


@dataclass(frozen=True)
class VitConfig:
    """ViT base with 16x16 patches by default."""

    family: str = "vit"
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    image_size: tuple[int, int] = (224, 224)
    patch_size: tuple[int, int] = (16, 16)
    num_channels: int = 3
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    dropout: float = 0.0
    attention_dropout: float = 0.0
    num_labels: int = 1000


class Vit(nn.Module):
    """`model(pixels)` returns the last hidden state (B, 1 + patches, W), `model.logits(hidden)` logits (B, labels).

    In place of pixels the model also takes vectors of patches with their positions, see `PatchEmbedding`.
    `model.pooler(hidden, layout)` exists if the checkpoint has it.
    """

    def __init__(
        self, config: VitConfig, *, output_heads: Collection[str] = ("classifier",), distillation: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig.of(config, norm_first=True)
        self.embedding = PatchEmbedding(
            image=config.image_size,
            patch=config.patch_size,
            channels=config.num_channels,
            width=config.hidden_size,
            distillation=distillation,
            dropout=config.dropout,
        )
        self.encoder = Stack((Block(layer) for _ in range(config.num_hidden_layers)), norm=layer.new_norm())
        self.pooler = Pooler(config.hidden_size) if "pooler" in output_heads else None
        self.classifier = nn.Linear(config.hidden_size, config.num_labels) if "classifier" in output_heads else None
        normal_init(self)

    def forward(self, pixels: Tensor, positions: Tensor | None = None) -> Tensor:
        hidden: Tensor = self.encoder(self.embedding(pixels, positions), Padded())
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits (B, labels) from the vector of [CLS]."""
        if self.classifier is None:
            raise ValueError("this model has no classifier: fine-tune it, or load a checkpoint that has one")
        result: Tensor = self.classifier(hidden[:, 0])
        return result


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


FAMILY = Family(
    name="vit",
    title="a ViT",
    year=2020,
    description="encoder of image patches; head: classifier",
    model_class=Vit,
    config_class=VitConfig,
    capabilities=frozenset({"image", "pooling", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("pooler", "classifier"),
    checkpoints=(
        Checkpoint("google/vit-base-patch16-224", 86_567_656),
        Checkpoint("google/vit-large-patch16-224", 304_326_632, shape(1024, 24, 16)),
    ),
    file_format=FileFormat(
        KEYS,
        architecture,
        lambda config: NAMES,
        {"qkv_bias": True},
        read=read,
        write=write,
        class_prefix="ViT",
    ),
)
