"""The first GPT: a post-norm causal Transformer decoder without a final norm."""

from __future__ import annotations

from dataclasses import dataclass

from regard.models.family import Checkpoint, Family
from regard.nn.block import Block, LayerConfig
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import LearnedPositions, TextEmbedding
from regard.nn.stack import Stack
from regard.nn.training import normal_init


@dataclass(frozen=True)
class OpenAIGptConfig:
    """The published model by default; feed-forward layers have four times the width."""

    family: str = "openai-gpt"
    vocab_size: int = 40478
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    hidden_act: str = "gelu-tanh"
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    bos_token_id: int | None = None
    eos_token_id: int | None = None


class OpenAIGpt(CausalDecoder):
    """Called like GPT-2."""

    def __init__(self, config: OpenAIGptConfig) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig.from_model_config(config, causal=True)
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size),
            dropout=config.dropout,
        )
        self.decoder = Stack(Block(layer) for _ in range(config.num_hidden_layers))
        normal_init(self)


FAMILY = Family(
    name="openai-gpt",
    title="a GPT",
    year=2018,
    description="the first GPT: post-norm decoder that predicts the next token",
    model_class=OpenAIGpt,
    config_class=OpenAIGptConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    checkpoints=(Checkpoint("openai-community/openai-gpt", 116_534_784),),
)
