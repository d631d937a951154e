"""GPT-NeoX and Pythia: decoders with partly rotated heads, whose attention and feed-forward network run in parallel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from regard.models import llama
from regard.models.family import Checkpoint, shape
from regard.nn.block import Block, LayerConfig, ParallelBlock


@dataclass(frozen=True)
class GptNeoXConfig(llama.LlamaConfig):
    """GPT-NeoX 20B by default."""

    family: str = "gpt-neox"
    vocab_size: int = 50432
    hidden_size: int = 6144
    num_hidden_layers: int = 44
    num_attention_heads: int = 64
    intermediate_size: int = 24576
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-5
    norm: Literal["rms", "offset-rms", "layer"] = "layer"
    dropout: float = 0.0
    attention_bias: bool = True
    mlp_bias: bool = True
    partial_rotary_factor: float = 0.25
    use_parallel_residual: bool = True  # False: one after the other

    def layer(self, number: int) -> LayerConfig:
        return replace(super().layer(number), gated=False)

    def blocks(self) -> list[Any]:
        rotary = self.new_rotary(self.head_width, self.max_position_embeddings)
        layers = [self.layer(number) for number in range(self.num_hidden_layers)]
        if self.use_parallel_residual:
            return [ParallelBlock(layer, positions=rotary, separate_norms=True) for layer in layers]
        return [Block(layer, positions=rotary) for layer in layers]

    @property
    def embedding_dropout(self) -> float:
        return self.dropout


PYTHIA = {"vocab_size": 50304}

FAMILY = replace(
    llama.FAMILY,
    name="gpt-neox",
    title="a GPT-NeoX",
    year=2022,
    description="decoder with partly rotary positions and parallel layers; also Pythia",
    config_class=GptNeoXConfig,
    checkpoints=(
        Checkpoint("EleutherAI/pythia-70m", 70_426_624, {**PYTHIA, **shape(512, 6, 8)}),
        Checkpoint("EleutherAI/pythia-160m", 162_322_944, {**PYTHIA, **shape(768, 12, 12)}),
        Checkpoint("EleutherAI/pythia-1.4b", 1_414_647_808, {**PYTHIA, **shape(2048, 24, 16)}),
    ),
)
