"""BERT: a bidirectional Transformer encoder with its pretraining heads.

DistilBERT, RoBERTa, XLM-RoBERTa, CamemBERT, MPNet, ELECTRA, ALBERT and DeBERTa use it too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import check_choice
from regard.models.family import Checkpoint, Family, PretrainingRecipe, get_family, shape
from regard.nn.block import ACTIVATIONS, Block, LayerConfig
from regard.nn.embedding import LearnedPositions, TextEmbedding
from regard.nn.masks import Context, Layout, Padded, first_tokens
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init


@dataclass(frozen=True)
class BertConfig:
    """BERT base by default. `embedding_size` is the size of embeddings that a linear layer projects to `hidden_size`;
    None: they have that size. `position_offset` is the number of unused rows before the first position."""

    family: str = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    embedding_size: int | None = None
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

    The head is position-wise, so it can be applied to selected positions only. `bias` applies to the layer and norm.
    """

    def __init__(
        self, width: int, embedding: nn.Embedding, *, eps: float, activation: str = "gelu", bias: bool = True
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(width, embedding.embedding_dim, bias=bias)
        self.norm = nn.LayerNorm(embedding.embedding_dim, eps=eps, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.bias: nn.Parameter | None = nn.Parameter(torch.zeros(embedding.num_embeddings))
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


class TextEncoder(nn.Module):
    """An embedding and a stack of layers: `model(ids, layout)` returns the last hidden state (B, T, W), or (N, W) if
    packed."""

    embedding: TextEmbedding
    encoder: Stack

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
        output_positions: Tensor | None = None,
    ) -> Tensor:
        """Return the last hidden state, or (M, W) for `output_positions` (M,), indices into the flat batch."""
        layout = layout or Padded()
        hidden: Tensor = self.encoder(
            self.embedding(ids, layout, segments), Context(layout, output_positions=output_positions)
        )
        return hidden


class Bert(TextEncoder):
    """`model(ids, layout)` returns the last hidden state (B, T, W), or (N, W) if packed.

    The heads are modules: `model.mlm_head(hidden)` (B, T, V), `model.pooler(hidden, layout)` (B, W) and
    `model.nsp_head(pooled)` (B, 2), whose first logit stands for "B follows A".
    """

    def __init__(self, config: BertConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__()
        self.config = config
        family = get_family(config.family)
        output_heads = family.output_heads if output_heads is None else output_heads
        for head in output_heads:
            check_choice("head", head, family.output_heads)
        layer = LayerConfig.from_model_config(config)
        width = config.embedding_size or config.hidden_size
        self.embedding = TextEmbedding(
            config.vocab_size,
            width,
            positions=self.new_positions(width),
            segments=config.type_vocab_size,
            norm=nn.LayerNorm(width, eps=config.layer_norm_eps),
            dropout=config.dropout,
            project=None if config.embedding_size is None else nn.Linear(width, config.hidden_size),
        )
        self.encoder = Stack(self.new_layers(layer))
        self.pooler = Pooler(config.hidden_size) if "pooler" in output_heads else None
        self.mlm_head = None
        if "mlm_head" in output_heads:
            activation = family.mlm_activation or config.hidden_act
            self.mlm_head = MaskedLMHead(
                config.hidden_size, self.embedding.tokens, eps=config.layer_norm_eps, activation=activation
            )
        self.nsp_head = nn.Linear(config.hidden_size, 2) if "nsp_head" in output_heads else None
        normal_init(self)
        scaled_init(self.encoder.layers)

    def new_positions(self, width: int) -> nn.Module | None:
        """Return the position embeddings; None: the layers encode positions."""
        return LearnedPositions(self.config.max_position_embeddings, width, offset=self.config.position_offset)

    def new_layers(self, layer: LayerConfig) -> Iterable[nn.Module]:
        """Return the layers of the encoder."""
        return (Block(layer) for _ in range(self.config.num_hidden_layers))


def config_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the section [model] of pretraining settings."""
    names = {"activation": "hidden_act"}
    return {names.get(key, key): value for key, value in settings.items() if key != "family"}


FAMILY = Family(
    name="bert",
    title="a BERT",
    year=2018,
    description="bidirectional encoder; heads: pooler, masked language model, next sentence",
    model_class=Bert,
    config_class=BertConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "next-sentence", "pooling", "segments", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("pooler", "mlm_head", "nsp_head"),
    checkpoints=(
        Checkpoint("google-bert/bert-base-uncased", 110_106_428),
        Checkpoint("google-bert/bert-large-uncased", 336_226_108, shape(1024, 24, 16)),
        Checkpoint("google-bert/bert-base-cased", 108_932_934, {"vocab_size": 28996}),
        Checkpoint("google-bert/bert-base-multilingual-cased", 178_566_653, {"vocab_size": 119547}),
        Checkpoint("sentence-transformers/all-MiniLM-L6-v2", 22_713_216, shape(384, 6, 12), ("pooler",)),
    ),
    pretraining=PretrainingRecipe(
        name="bert",
        objective="masked-lm",
        config_fields=config_fields,
        token_ids={"pad_token_id": "pad_token_id"},
        unused=("objective.mean_noise_span_length",),
    ),
)
