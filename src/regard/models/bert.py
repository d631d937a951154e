"""BERT, DistilBERT and RoBERTa: a bidirectional Transformer encoder with its pretraining heads."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import check_choice
from regard.models.family import get_family
from regard.nn import Block, Context, LayerConfig, Layout, LearnedPositions, Padded, Stack, TextEmbedding
from regard.nn import init as initial
from regard.nn.block import ACTIVATIONS
from regard.nn.masks import first_tokens


@dataclass(frozen=True)
class BertConfig:
    """BERT base by default. `family` is bert, distilbert (no segments) or roberta (two unused positions)."""

    family: str = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    position_offset: int = 0
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    pad_token_id: int = 0  # the id of [PAD], stored in config.json


class Pooler(nn.Module):
    """A linear layer with tanh on the vector of the first token: the input of sentence-level heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        return self.vectors(first_tokens(x, layout))

    def vectors(self, x: Tensor) -> Tensor:
        """Apply the layer to vectors of first tokens, (B, W)."""
        return torch.tanh(self.linear(x))


class MaskedLMHead(nn.Module):
    """Logits over the vocabulary: a linear layer, a norm, and the product with the tied embedding matrix.

    The head is position-wise, so it can be applied to selected positions only.
    """

    def __init__(self, config: BertConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        # RoBERTa's head always uses gelu.
        self.activation = ACTIVATIONS["gelu" if config.family == "roberta" else config.hidden_act]
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.tied = [embedding]  # in a list, so that the matrix is registered only in the embedding

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.vectors(x), self.weight, self.bias)

    def vectors(self, x: Tensor) -> Tensor:
        """Return the vectors that are multiplied with the embedding matrix."""
        result: Tensor = self.norm(self.activation(self.linear(x)))
        return result

    @property
    def weight(self) -> Tensor:
        return self.tied[0].weight


class Bert(nn.Module):
    """`model(ids, layout)` returns the last hidden state (B, T, W), or (N, W) if packed.

    The heads are modules: `model.masked(hidden)` (B, T, V), `model.pooler(hidden, layout)` (B, W) and
    `model.next(pooled)` (B, 2), whose first logit stands for "B follows A".
    """

    def __init__(self, config: BertConfig, *, heads: Collection[str] | None = None) -> None:
        super().__init__()
        self.config = config
        known = get_family(config.family).heads
        heads = known if heads is None else heads
        for head in heads:
            check_choice("head", head, known)
        layer = LayerConfig(
            width=config.hidden_size,
            heads=config.num_attention_heads,
            ffn=config.intermediate_size,
            eps=config.layer_norm_eps,
            activation=config.hidden_act,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
        )
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(
                config.max_position_embeddings, config.hidden_size, offset=config.position_offset
            ),
            segments=config.type_vocab_size,
            norm=layer.new_norm(),
            dropout=config.dropout,
        )
        self.encoder = Stack(Block(layer) for _ in range(config.num_hidden_layers))
        self.pooler = Pooler(config.hidden_size) if "pooler" in heads else None
        self.masked = MaskedLMHead(config, self.embedding.tokens) if "masked" in heads else None
        self.next = nn.Linear(config.hidden_size, 2) if "next" in heads else None
        initial.normal_init(self)
        initial.scaled_init(self.encoder.layers)

    def states(self, ids: Tensor, layout: Layout | None = None, segments: Tensor | None = None) -> Iterator[Tensor]:
        """Yield every hidden state, the embedding output first."""
        layout = layout or Padded()
        return self.encoder.states(self.embedding(ids, layout, segments), layout)

    def forward(
        self,
        ids: Tensor,
        layout: Layout | None = None,
        segments: Tensor | None = None,
        *,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Return the last hidden state, or (M, W) for `rows` (M,), indices into the flat batch."""
        layout = layout or Padded()
        hidden: Tensor = self.encoder(self.embedding(ids, layout, segments), Context(layout, rows=rows))
        return hidden
