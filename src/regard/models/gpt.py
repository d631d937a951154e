"""GPT-2: a causal Transformer decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import (
    Block,
    Context,
    DecoderState,
    LayerConfig,
    Layout,
    LearnedPositions,
    Padded,
    Stack,
    StackCache,
    TextEmbedding,
)
from regard.nn import init as initial


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


class Gpt(nn.Module):
    """`model(ids, layout)` returns the last hidden state, `model.logits(hidden)` the logits of the next token."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig(
            width=config.hidden_size,
            heads=config.num_attention_heads,
            ffn=config.intermediate_size,
            norm_first=True,
            eps=config.layer_norm_eps,
            activation=config.hidden_act,
            causal=True,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
        )
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size),
            dropout=config.dropout,
        )
        self.decoder = Stack((Block(layer) for _ in range(config.num_hidden_layers)), norm=layer.new_norm())
        initial.normal_init(self)
        initial.scaled_init(self.decoder.layers)

    def states(self, ids: Tensor, layout: Layout | None = None) -> Iterator[Tensor]:
        """Yield every hidden state, the embedding output first."""
        layout = layout or Padded()
        return self.decoder.states(self.embedding(ids, layout), layout)

    def forward(self, ids: Tensor, layout: Layout | None = None) -> Tensor:
        layout = layout or Padded()
        hidden: Tensor = self.decoder(self.embedding(ids, layout), layout)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.output_weight)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V, W) of the output layer, tied to the embedding."""
        return self.embedding.tokens.weight

    def start(self, ids: Tensor, layout: Padded | None = None) -> tuple[Tensor, DecoderState]:
        """Read prompts (B, T), padded on the right; return the logits (B, V) of the next token and the state."""
        mask = None if layout is None else layout.mask
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        if not bool(mask[:, 0].all()):
            raise ValueError("prompts must be padded on the right: each row must begin with a token")
        state = DecoderState(StackCache(len(self.decoder.layers)), mask, is_full=bool(mask.all()))
        hidden = self.decoder(self.embedding(ids, state.layout), Context(state.layout, cache=state.cache))
        last = hidden[torch.arange(len(ids), device=ids.device), state.lengths - 1]
        return self.logits(last), state

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Append tokens (B,), one per row; return the logits (B, V) of the next token and the state."""
        x = self.embed_next(tokens, state)
        hidden = self.decoder(x, Context(state.layout, cache=state.cache))
        return self.logits(hidden[:, -1]), state

    def embed_next(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Extend the state by the tokens (B,) and return their vectors (B, 1, W)."""
        start = state.lengths[:, None]
        state.extend(1)
        x: Tensor = self.embedding(tokens[:, None], state.layout, start=start)
        return x
