"""Granite: a Llama whose embeddings, scores, branches and logits are multiplied by constants."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from regard.errors import InputError
from regard.models import llama
from regard.models.family import Checkpoint, shape
from regard.nn.block import LayerConfig, Scale


@dataclass(frozen=True)
class GraniteConfig(llama.LlamaConfig):
    """Granite 3 8B by default, with constants that have no effect, as in transformers."""

    family: str = "granite"
    vocab_size: int = 49155
    num_hidden_layers: int = 40
    num_key_value_heads: int | None = 8
    intermediate_size: int = 12800
    embedding_multiplier: float = 1.0
    attention_multiplier: float = 1.0  # of the scores, in place of 1 / sqrt(head width)
    residual_multiplier: float = 1.0  # of the output of each branch
    logits_scaling: float = 1.0  # the logits are divided by it

    def layer(self, number: int) -> LayerConfig:
        return replace(super().layer(number), scale=self.attention_multiplier)

    def blocks(self) -> list[Any]:
        blocks = super().blocks()
        for block in blocks:
            for residual in (block.attention_residual, block.ffn_residual):
                residual.post_norm = Scale(self.residual_multiplier)
        return blocks


class Granite(llama.Llama):
    """A Llama with scaled embeddings and logits."""

    config: GraniteConfig

    def __init__(self, config: GraniteConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__(config, output_heads=output_heads)
        if config.logits_scaling <= 0:
            raise InputError(f"logits_scaling is {config.logits_scaling}; it must be above 0")
        self.embedding.scale = config.embedding_multiplier

    def logits(self, hidden: Tensor) -> Tensor:
        return super().logits(hidden) / self.config.logits_scaling


V3 = {
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.015625,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
    "rope_theta": 10000000.0,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "max_position_embeddings": 131072,
}
FAMILY = replace(
    llama.FAMILY,
    name="granite",
    title="a Granite",
    year=2024,
    description="Llama with constant factors of embeddings, scores, branches and logits",
    model_class=Granite,
    config_class=GraniteConfig,
    checkpoints=(
        Checkpoint(
            "ibm-granite/granite-3.3-2b-instruct",
            2_533_539_840,
            {**V3, "vocab_size": 49159, **shape(2048, 40, 32, 8192)},
            (),
        ),
    ),
)
