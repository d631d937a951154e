"""The Transformer of "Attention Is All You Need" (2017): a post-norm encoder-decoder with sinusoidal positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

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
        shape = LayerConfig(
            width=config.hidden_size,
            heads=config.num_attention_heads,
            ffn=config.intermediate_size,
            norm_first=config.norm_first,
            eps=config.layer_norm_eps,
            activation=config.hidden_act,
            dropout=config.dropout,
            attention_dropout=config.dropout,
            ffn_dropout=config.dropout,
        )
        self.embedding = self._embedding(config.vocab_size)
        self.target_embedding = (
            None if config.share_embeddings else self._embedding(config.target_vocab_size or config.vocab_size)
        )
        self.encoder = self._stack(shape)
        self.decoder = self._stack(replace(shape, causal=True, cross=True))
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

    @property
    def decoder_embedding(self) -> TextEmbedding:
        return self.target_embedding or self.embedding

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """The vocabulary sizes of source and target."""
        return self.config.vocab_size, self.config.target_vocab_size or self.config.vocab_size

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.decoder_embedding.tokens.weight)


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
