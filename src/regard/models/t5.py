"""T5: an encoder and a decoder whose only sense of place is a learned bias on distances."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.encoder_decoder import EncoderDecoder
from regard.nn import LayerConfig, RelativePositionBias, Stack, TextEmbedding

__all__ = ["T5", "T5Config"]


@dataclass(frozen=True)
class T5Config:
    """The defaults are T5 small. `scaled`: hidden states are made small before the output layer, which is then usually
    the embedding matrix; without the head "output" it always is."""

    family: str = "t5"
    vocabulary: int = 32128
    width: int = 512
    head_width: int = 64
    depth: int = 6
    decoder_depth: int = 6
    heads: int = 8
    ffn: int = 2048
    activation: str = "relu"
    gated: bool = False
    buckets: int = 32
    reach: int = 128
    eps: float = 1e-6
    dropout: float = 0.1
    scaled: bool = True
    padding: int = 0
    end: int = 1
    begin: int = 0  # the decoder's first token


class T5(EncoderDecoder):
    """Pre-norm without biases; scores are not scaled."""

    def __init__(self, config: T5Config, *, heads: Collection[str] = ()) -> None:
        super().__init__()
        self.config, self.begin = config, config.begin
        shape = LayerConfig(
            width=config.width,
            heads=config.heads,
            ffn=config.ffn,
            head_width=config.head_width,
            norm_first=True,
            norm="rms",
            eps=config.eps,
            activation=config.activation,
            gated=config.gated,
            bias=False,
            scale=1.0,
            dropout=config.dropout,
            attention_dropout=config.dropout,
            ffn_dropout=config.dropout,
        )
        self.embedding = TextEmbedding(config.vocabulary, config.width, dropout=config.dropout)
        self.encoder = self._stack(shape, config.depth)
        self.decoder = self._stack(replace(shape, causal=True, cross=True), config.decoder_depth)
        self.output = nn.Linear(config.width, config.vocabulary, bias=False) if "output" in heads else None
        self._initialise()

    def _stack(self, layer: LayerConfig, depth: int) -> Stack:
        config = self.config
        relative = RelativePositionBias(
            config.heads, buckets=config.buckets, max_distance=config.reach, causal=layer.causal
        )
        return Stack(layer, depth, final_norm=True, relative=relative, dropout=config.dropout)

    def _initialise(self) -> None:
        """T5 has no scale in its scores, so its queries begin small; all else by fan-in."""
        config, inner = self.config, self.config.heads * self.config.head_width
        nn.init.normal_(self.embedding.tokens.weight)
        for stack in (self.encoder, self.decoder):
            nn.init.normal_(stack.relative.table.weight, 0.0, config.width**-0.5)  # type: ignore[union-attr]
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and ".layers." in name:
                nn.init.normal_(parameter, 0.0, parameter.shape[1] ** -0.5)
                if ".attention.project" in name:
                    parameter.data[:inner] *= config.head_width**-0.5
                elif ".cross.project.query" in name:
                    parameter.data *= config.head_width**-0.5

    def logits(self, hidden: Tensor) -> Tensor:
        if self.config.scaled:
            hidden = hidden * self.config.width**-0.5
        return F.linear(hidden, (self.output or self.embedding.tokens).weight)
