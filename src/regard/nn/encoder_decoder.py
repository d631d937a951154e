"""The base class of encoder-decoders: the source is encoded once, and the target is decoded token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.cache import DecoderState, StackCache
from regard.nn.embedding import TextEmbedding
from regard.nn.masks import Context, Layout, Padded
from regard.nn.stack import Stack


class EncoderDecoder(nn.Module):
    """Subclasses define `encoder`, `decoder`, `embedding` and `begin` (the first token of the decoder).

    The target has the embedding of the source unless a subclass defines `target_embedding`. The output layer is tied to
    it; `final_logits_bias` (1, V) is added to the logits of a model that has it.
    `model(source, target)` returns the last hidden state of the decoder (B, T, W); both may be packed. Searches choose
    `forced_first` as the first token, if there is one, and none of the `suppressed` tokens.
    """

    encoder: Stack
    decoder: Stack
    embedding: TextEmbedding
    begin: int
    forced_first: int | None = None
    suppressed: tuple[int, ...] = ()

    @property
    def decoder_embedding(self) -> TextEmbedding:
        """The embedding of the target."""
        return getattr(self, "target_embedding", None) or self.embedding

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """The vocabulary sizes of source and target."""
        config: Any = self.config
        return config.vocab_size, getattr(config, "target_vocab_size", None) or config.vocab_size

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next token (..., V)."""
        bias = getattr(self, "final_logits_bias", None)
        return F.linear(hidden, self.decoder_embedding.tokens.weight, None if bias is None else bias[0])

    def states(self, ids: Tensor, layout: Layout | None = None) -> Iterator[Tensor]:
        """Yield every hidden state of the encoder, the embedding output first."""
        layout = layout or Padded()
        return self.encoder.states(self.embedding(ids, layout), layout)

    def encode(self, ids: Tensor, layout: Layout | None = None) -> Tensor:
        layout = layout or Padded()
        memory: Tensor = self.encoder(self.embedding(ids, layout), layout)
        return memory

    def decode(
        self, ids: Tensor, memory: Tensor, layout: Layout | None = None, memory_layout: Layout | None = None
    ) -> Tensor:
        layout = layout or Padded()
        hidden: Tensor = self.decoder(self.decoder_embedding(ids, layout), Context(layout, memory, memory_layout))
        return hidden

    def forward(
        self, ids: Tensor, target: Tensor, layout: Layout | None = None, target_layout: Layout | None = None
    ) -> Tensor:
        return self.decode(target, self.encode(ids, layout), target_layout, layout)

    def teacher_forced_logits(self, source: Tensor, layout: Layout, target: Tensor) -> Tensor:
        """Return the logits (B, T, V) of each target token, given the tokens before it."""
        begin = target.new_full((len(target), 1), self.begin)
        # Padding is on the right and the decoder is causal, so it needs no mask.
        return self.logits(self(source, torch.cat([begin, target[:, :-1]], dim=1), layout, Padded()))

    def start(self, ids: Tensor, layout: Padded | None = None) -> tuple[Tensor, DecoderState]:
        """Encode the sources and decode the start token; return the logits (B, V) of the next token and the state."""
        layout = layout or Padded()
        mask = torch.ones(len(ids), 0, dtype=torch.bool, device=ids.device)
        state = DecoderState(StackCache(len(self.decoder.layers)), mask, self.encode(ids, layout), layout, is_full=True)
        return self.step(torch.full((len(ids),), self.begin, device=ids.device), state)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Append tokens (B,), one per row; return the logits (B, V) of the next token and the state."""
        state.expand_memory()
        start = state.cache.length
        x = self.embed_next(tokens, state)
        context = Context(Padded(), state.memory, state.memory_layout, cache=state.cache, start=start)
        hidden = self.decoder(x, context)
        return self.logits(hidden[:, -1]), state

    def embed_next(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Extend the state by the tokens (B,) and return their vectors (B, 1, W)."""
        x: Tensor = self.decoder_embedding(tokens[:, None], Padded(), start=state.cache.length)
        state.extend(1)
        return x
