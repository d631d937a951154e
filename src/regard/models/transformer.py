"""The Transformer of "Attention Is All You Need" (2017): encoder and decoder, sinusoids, norms after the residuals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.encoder_decoder import EncoderDecoder
from regard.nn import LayerConfig, SinusoidalPositions, Stack, TextEmbedding
from regard.nn.positions import Arrangement

__all__ = ["Transformer", "TransformerConfig"]


@dataclass(frozen=True)
class TransformerConfig:
    """The defaults are the paper's base model. `shared`: one embedding matrix for source, target and output."""

    family: str = "transformer"
    vocabulary: int = 37000
    target_vocabulary: int | None = None  # None: as the source's
    width: int = 512
    depth: int = 6
    heads: int = 8
    ffn: int = 2048
    activation: str = "relu"
    norm_first: bool = False
    final_norm: bool = False
    arrangement: Arrangement = "interleaved"
    eps: float = 1e-6
    dropout: float = 0.1
    shared: bool = True
    padding: int = 0
    begin: int = 1
    end: int = 2

    def __post_init__(self) -> None:
        if self.shared and self.target_vocabulary not in (None, self.vocabulary):
            raise ValueError("a shared embedding needs one vocabulary: set shared=False or drop target_vocabulary")


class Transformer(EncoderDecoder):
    """Figure 1 of the paper. The top of the encoder is the memory of every layer of the decoder."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, self.begin = config, config.begin
        shape = LayerConfig(
            width=config.width,
            heads=config.heads,
            ffn=config.ffn,
            norm_first=config.norm_first,
            eps=config.eps,
            activation=config.activation,
            dropout=config.dropout,
            attention_dropout=config.dropout,
            ffn_dropout=config.dropout,
        )
        self.embedding = self._embedding(config.vocabulary)
        self.target_embedding = (
            None if config.shared else self._embedding(config.target_vocabulary or config.vocabulary)
        )
        self.encoder = Stack(shape, config.depth, final_norm=config.final_norm)
        self.decoder = Stack(replace(shape, causal=True, cross=True), config.depth, final_norm=config.final_norm)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        for embedding in (self.embedding, self.target_embedding):
            if embedding is not None:  # times sqrt(width) in the forward: vectors of size about one
                nn.init.normal_(embedding.tokens.weight, 0.0, config.width**-0.5)

    def _embedding(self, vocabulary: int) -> TextEmbedding:
        config = self.config
        positions = SinusoidalPositions(config.width, arrangement=config.arrangement)
        return TextEmbedding(vocabulary, config.width, positions=positions, dropout=config.dropout, scaled=True)

    @property
    def said(self) -> TextEmbedding:
        return self.target_embedding or self.embedding

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.said.tokens.weight)
