"""The Vision Transformer: an encoder of image patches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor, nn

from regard.models.bert import Pooler
from regard.models.family import Checkpoint, Family, shape
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
        layer = LayerConfig.from_model_config(config, norm_first=True)
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
)
