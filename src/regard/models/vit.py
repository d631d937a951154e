"""The Vision Transformer: an encoder of image patches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor, nn

from regard.models.bert import Pooler
from regard.nn import Block, LayerConfig, Padded, PatchEmbedding, Stack
from regard.nn import init as initial


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
    """`model(pixels)` returns the last hidden state (B, 1 + patches, W), `model.classifier(hidden[:, 0])` the logits.

    `model.pooler(hidden, layout)` exists if the checkpoint has it.
    """

    def __init__(self, config: VitConfig, *, heads: Collection[str] = ("classifier",)) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig(
            width=config.hidden_size,
            heads=config.num_attention_heads,
            ffn=config.intermediate_size,
            norm_first=True,
            eps=config.layer_norm_eps,
            activation=config.hidden_act,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
        )
        self.embedding = PatchEmbedding(
            image=config.image_size,
            patch=config.patch_size,
            channels=config.num_channels,
            width=config.hidden_size,
            dropout=config.dropout,
        )
        self.encoder = Stack((Block(layer) for _ in range(config.num_hidden_layers)), norm=layer.new_norm())
        self.pooler = Pooler(config.hidden_size) if "pooler" in heads else None
        self.classifier = nn.Linear(config.hidden_size, config.num_labels) if "classifier" in heads else None
        initial.normal_init(self)

    def forward(self, pixels: Tensor) -> Tensor:
        hidden: Tensor = self.encoder(self.embedding(pixels), Padded())
        return hidden
