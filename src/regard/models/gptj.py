"""GPT-J: a decoder with rotary positions whose attention and feed-forward network run in parallel after one norm."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor, nn

from regard.errors import InputError
from regard.models.family import Checkpoint, Family
from regard.models.gpt2 import GptConfig
from regard.nn.block import LayerConfig, ParallelBlock
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import TextEmbedding
from regard.nn.rotary import Rotary
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init


@dataclass(frozen=True)
class GptJConfig(GptConfig):
    """GPT-J 6B by default. `rotary_dim` values of each head are rotated."""

    family: str = "gptj"
    vocab_size: int = 50400
    hidden_size: int = 4096
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    intermediate_size: int = 16384
    max_position_embeddings: int = 2048
    rotary_dim: int = 64
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    bos_token_id: int | None = 50256
    eos_token_id: int | None = 50256


class GptJ(CausalDecoder):
    """Called like GPT-2. The head "output" is the output layer, which has its own matrix and a bias."""

    def __init__(self, config: GptJConfig, *, output_heads: Collection[str] = ("output",)) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig.from_model_config(
            config, norm_first=True, qkv_bias=False, attention_output_bias=False, causal=True
        )
        self.embedding = TextEmbedding(config.vocab_size, config.hidden_size, dropout=config.embedding_dropout)
        positions = Rotary(config.rotary_dim, interleaved=True)
        layers = (ParallelBlock(layer, positions=positions) for _ in range(config.num_hidden_layers))
        self.decoder = Stack(layers, norm=layer.new_norm())
        self.output = nn.Linear(config.hidden_size, config.vocab_size) if "output" in output_heads else None
        normal_init(self)
        scaled_init(self.decoder.layers)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V, W) of the output layer."""
        if self.output is None:
            raise InputError("this GPT-J has no output layer, as in a file without lm_head; it cannot predict tokens")
        return self.output.weight

    @property
    def output_bias(self) -> Tensor | None:
        return None if self.output is None else self.output.bias


FAMILY = Family(
    name="gptj",
    title="a GPT-J",
    year=2021,
    description="decoder with rotary positions and parallel layers",
    model_class=GptJ,
    config_class=GptJConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    output_heads=("output",),
    checkpoints=(Checkpoint("EleutherAI/gpt-j-6b", 6_050_882_784),),
)
