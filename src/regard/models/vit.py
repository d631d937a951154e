"""The Vision Transformer: an image is a sentence of patches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor, nn

from regard.models.bert import Pooler
from regard.nn import LayerConfig, Padded, PatchEmbedding, Stack
from regard.nn import init as initial

__all__ = ["Vit", "VitConfig"]


@dataclass(frozen=True)
class VitConfig:
    """The defaults are ViT base: 16x16 words."""

    family: str = "vit"
    width: int = 768
    depth: int = 12
    heads: int = 12
    ffn: int = 3072
    image: tuple[int, int] = (224, 224)
    patch: tuple[int, int] = (16, 16)
    channels: int = 3
    activation: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.0
    attention_dropout: float = 0.0
    labels: int = 1000


class Vit(nn.Module):
    """`model(pixels)` gives the last hidden state (B, 1 + patches, W); `model.classifier(hidden[:, 0])` the logits.

    `model.pooler(hidden, layout)` is there where a checkpoint has it.
    """

    def __init__(self, config: VitConfig, *, heads: Collection[str] = ("classifier",)) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig(
            width=config.width,
            heads=config.heads,
            ffn=config.ffn,
            norm_first=True,
            eps=config.eps,
            activation=config.activation,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
        )
        self.embedding = PatchEmbedding(
            image=config.image,
            patch=config.patch,
            channels=config.channels,
            width=config.width,
            dropout=config.dropout,
        )
        self.encoder = Stack(layer, config.depth, final_norm=True)
        self.pooler = Pooler(config.width) if "pooler" in heads else None
        self.classifier = nn.Linear(config.width, config.labels) if "classifier" in heads else None
        initial.normal(self)

    def forward(self, pixels: Tensor) -> Tensor:
        hidden: Tensor = self.encoder(self.embedding(pixels), Padded())
        return hidden
