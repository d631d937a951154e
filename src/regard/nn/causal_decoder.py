"""The base class of causal language models: a decoder that continues a text token by token."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.cache import DecoderState, StackCache
from regard.nn.embedding import TextEmbedding
from regard.nn.masks import Context, Layout, Padded
from regard.nn.stack import Stack


class CausalDecoder(nn.Module):
    """Subclasses define `embedding` and `decoder`, and the weight and bias of an output layer of their own.

    `model(ids, layout)` returns the last hidden state, `model.logits(hidden)` the logits of the next token.
    """

    embedding: TextEmbedding
    decoder: Stack

    def states(self, ids: Tensor, layout: Layout | None = None) -> Iterator[Tensor]:
        """Yield every hidden state, the embedding output first."""
        layout = layout or Padded()
        return self.decoder.states(self.embedding(ids, layout), layout)

    def forward(self, ids: Tensor, layout: Layout | None = None) -> Tensor:
        layout = layout or Padded()
        hidden: Tensor = self.decoder(self.embedding(ids, layout), layout)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.output_weight, self.output_bias)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V, W) of the output layer, tied to the embedding."""
        return self.embedding.tokens.weight

    @property
    def output_bias(self) -> Tensor | None:
        """The bias (V,) of the output layer; None: it has none."""
        return None

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
        return self.logits(self.extend(tokens[:, None], state)[:, -1]), state

    def extend(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Append tokens (B, T) to each row of the state; return their last hidden states (B, T, W)."""
        start = state.lengths[:, None]
        x = self.embed_next(tokens, state)
        hidden: Tensor = self.decoder(x, Context(state.layout, cache=state.cache, start=start))
        return hidden

    def embed_next(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Extend the state by the tokens, (B,) or (B, T), and return their vectors (B, T, W)."""
        start, tokens = state.lengths[:, None], tokens if tokens.ndim == 2 else tokens[:, None]
        state.extend(tokens.shape[1])
        x: Tensor = self.embedding(tokens, state.layout, start=start)
        return x
