"""EmbeddingGemma: a Gemma 3 that reads in both directions, without a head that predicts tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from regard.models import eurobert
from regard.models.family import Checkpoint
from regard.models.gemma3_text import Gemma3TextConfig
from regard.nn.block import LayerConfig


@dataclass(frozen=True)
class EmbeddingGemmaConfig(Gemma3TextConfig):
    """EmbeddingGemma 300M by default. Local layers attend to `sliding_window` // 2 tokens on each side."""

    causal: ClassVar[bool] = False
    family: str = "embeddinggemma"
    hidden_size: int = 768
    num_hidden_layers: int = 24
    num_attention_heads: int = 3
    intermediate_size: int = 1152
    max_position_embeddings: int = 2048

    def layer(self, number: int) -> LayerConfig:
        layer = super().layer(number)
        window = None if layer.window is None or self.sliding_window is None else self.sliding_window // 2
        return replace(layer, window=window)


FAMILY = replace(
    eurobert.FAMILY,
    name="embeddinggemma",
    title="an EmbeddingGemma",
    description="Gemma 3 that reads in both directions; for embeddings",
    config_class=EmbeddingGemmaConfig,
    capabilities=frozenset({"text-encoder", "fine-tuning"}),
    output_heads=(),
    pooler_activation="tanh",
    checkpoints=(Checkpoint("google/embeddinggemma-300m", 302_863_104),),
)
