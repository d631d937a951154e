"""GPT-2: a causal Transformer decoder."""

from __future__ import annotations

from dataclasses import dataclass

from regard.models.bert import config_fields
from regard.models.family import Checkpoint, Family, PretrainingRecipe, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import LearnedPositions, TextEmbedding
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init


@dataclass(frozen=True)
class GptConfig:
    """GPT-2 small by default."""

    family: str = "gpt2"
    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 1024
    hidden_act: str = "gelu-tanh"
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    bos_token_id: int | None = None  # the ids that begin and end a text, if the vocabulary has them
    eos_token_id: int | None = None

    def layer(self, number: int) -> LayerConfig:
        """Return the settings of a layer, counted from 0."""
        return LayerConfig.from_model_config(self, norm_first=True, causal=True)


class Gpt(CausalDecoder):
    """A decoder with learned positions; its output layer is tied to the embedding."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        layers = [config.layer(number) for number in range(config.num_hidden_layers)]
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size),
            dropout=config.dropout,
        )
        norm_first = layers[0].norm_first
        self.decoder = Stack(map(Block, layers), norm=layers[0].new_norm() if norm_first else None)
        normal_init(self)
        if norm_first:
            scaled_init(self.decoder.layers)


FAMILY = Family(
    name="gpt2",
    title="a GPT-2",
    year=2019,
    description="decoder that predicts the next token",
    model_class=Gpt,
    config_class=GptConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    checkpoints=(
        Checkpoint("openai-community/gpt2", 124_439_808),
        Checkpoint("openai-community/gpt2-medium", 354_823_168, shape(1024, 24, 16)),
        Checkpoint("openai-community/gpt2-large", 774_030_080, shape(1280, 36, 20)),
        Checkpoint("openai-community/gpt2-xl", 1_557_611_200, shape(1600, 48, 25)),
        Checkpoint("distilbert/distilgpt2", 81_912_576, {"num_hidden_layers": 6}),
    ),
    pretraining=PretrainingRecipe(
        name="gpt",
        objective="causal-lm",
        config_fields=config_fields,
        token_ids={"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id"},
        defaults={
            "model": {"activation": "gelu-tanh"},
            "vocabulary": {"kind": "bpe", "lowercase": False},
            "objective": {"sentence_pairs": "none"},
        },
    ),
)
