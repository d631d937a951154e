"""OLMo 2: a Llama that normalizes the output of each branch, not its input, and queries and keys as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from regard.models import llama
from regard.models.family import Checkpoint, shape
from regard.nn.block import JoinedRMSNorm, LayerConfig


@dataclass(frozen=True)
class Olmo2Config(llama.LlamaConfig):
    """OLMo 2 7B by default."""

    family: str = "olmo2"
    vocab_size: int = 100352
    layer_norm_eps: float = 1e-5

    def layer(self, number: int) -> LayerConfig:
        return replace(super().layer(number), post_norm=True)

    def blocks(self) -> list[Any]:
        blocks, heads = super().blocks(), self.num_attention_heads
        key_heads = self.num_key_value_heads or heads
        for block in blocks:
            block.attention_residual.norm = block.ffn_residual.norm = nn.Identity()
            block.attention.query_norm = JoinedRMSNorm(heads * self.head_width, eps=self.layer_norm_eps)
            block.attention.key_norm = JoinedRMSNorm(key_heads * self.head_width, eps=self.layer_norm_eps)
        return blocks


FAMILY = replace(
    llama.FAMILY,
    name="olmo2",
    title="an OLMo 2",
    year=2024,
    description="Llama with norms after each branch and of all queries and keys",
    config_class=Olmo2Config,
    checkpoints=(
        Checkpoint(
            "allenai/OLMo-2-0425-1B", 1_484_916_736, {"rope_theta": 500000.0, **shape(2048, 16, 16, 8192)}, ("output",)
        ),
        Checkpoint("allenai/OLMo-2-1124-7B", 7_298_617_344, {"rope_theta": 500000.0}, ("output",)),
    ),
)
