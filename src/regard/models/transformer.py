"""The Transformer of "Attention Is All You Need" (2017): a post-norm encoder-decoder with sinusoidal positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from regard.models.family import Family, TranslationRecipe
from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import Arrangement, SinusoidalPositions, TextEmbedding
from regard.nn.encoder_decoder import EncoderDecoder
from regard.nn.stack import Stack


@dataclass(frozen=True)
class TransformerConfig:
    """The base model of the paper by default. `share_embeddings`: one matrix for source, target and output."""

    family: str = "transformer"
    vocab_size: int = 37000
    target_vocab_size: int | None = None  # None: that of the source
    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    hidden_act: str = "relu"
    norm_first: bool = False
    final_norm: bool = False
    arrangement: Arrangement = "interleaved"
    layer_norm_eps: float = 1e-6
    dropout: float = 0.1
    share_embeddings: bool = True
    pad_token_id: int = 0
    decoder_start_token_id: int = 1
    eos_token_id: int = 2

    def __post_init__(self) -> None:
        if self.share_embeddings and self.target_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                "a shared embedding needs one vocabulary: set share_embeddings=False or drop target_vocab_size"
            )


class Transformer(EncoderDecoder):
    """Figure 1 of the paper. Every decoder layer attends to the output of the encoder."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, self.begin = config, config.decoder_start_token_id
        everywhere = dict.fromkeys(("attention_dropout", "ffn_dropout"), config.dropout)
        layer = LayerConfig.from_model_config(config, **everywhere)
        self.embedding = self._embedding(config.vocab_size)
        self.target_embedding = (
            None if config.share_embeddings else self._embedding(config.target_vocab_size or config.vocab_size)
        )
        self.encoder = self._stack(layer)
        self.decoder = self._stack(replace(layer, causal=True, cross=True))
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        for embedding in (self.embedding, self.target_embedding):
            if embedding is not None:  # the forward pass multiplies by sqrt(width), which gives unit variance
                nn.init.normal_(embedding.tokens.weight, 0.0, config.hidden_size**-0.5)

    def _stack(self, layer: LayerConfig) -> Stack:
        layers = (Block(layer) for _ in range(self.config.num_hidden_layers))
        return Stack(layers, norm=layer.new_norm() if self.config.final_norm else None)

    def _embedding(self, vocabulary: int) -> TextEmbedding:
        config = self.config
        positions = SinusoidalPositions(config.hidden_size, arrangement=config.arrangement)
        return TextEmbedding(vocabulary, config.hidden_size, positions=positions, dropout=config.dropout, scaled=True)


def translation_fields(settings: Mapping[str, Any], subwords: Any) -> dict[str, Any]:
    """Convert the section [model] of translation settings."""
    same = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "norm_first", "dropout")
    return {name: settings[name] for name in same} | {
        "vocab_size": subwords.source.size,
        "target_vocab_size": None if subwords.joint else subwords.target.size,
        "final_norm": settings["norm_first"],
        "share_embeddings": subwords.joint,
        "pad_token_id": subwords.padding,
        "decoder_start_token_id": subwords.begin,
        "eos_token_id": subwords.end,
    }


FAMILY = Family(
    name="transformer",
    title="a Transformer",
    year=2017,
    description="the encoder-decoder of 2017, sinusoidal positions",
    model_class=Transformer,
    config_class=TransformerConfig,
    capabilities=frozenset({"encoder-decoder", "translation"}),
    stacks=("encoder", "decoder"),
    translation=TranslationRecipe("transformer", translation_fields),
)
