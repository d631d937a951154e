"""Marian, the architecture of the OPUS-MT translators: the Transformer of 2017 with a bias of the output layer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.models import bart
from regard.models.family import Checkpoint, Family
from regard.nn.block import Block
from regard.nn.embedding import SinusoidalPositions, TextEmbedding
from regard.nn.encoder_decoder import EncoderDecoder
from regard.nn.stack import Stack
from regard.nn.training import normal_init


@dataclass(frozen=True)
class MarianConfig:
    """OPUS-MT's usual size. `share_embeddings`: one matrix for source, target and output, else one for the source."""

    family: str = "marian"
    vocab_size: int = 58101
    target_vocab_size: int | None = None  # None: that of the source
    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_decoder_layers: int = 6
    num_attention_heads: int = 8
    decoder_attention_heads: int = 8
    intermediate_size: int = 2048
    decoder_ffn_dim: int = 2048
    max_position_embeddings: int = 512
    hidden_act: str = "silu"
    scale_embedding: bool = True
    share_embeddings: bool = True
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pad_token_id: int = 58100
    eos_token_id: int = 0
    decoder_start_token_id: int = 58100

    def __post_init__(self) -> None:
        if self.share_embeddings and self.target_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                "a shared embedding needs one vocabulary: set share_embeddings=False or drop target_vocab_size"
            )


class Marian(EncoderDecoder):
    """The decoder starts with the padding token, which is never generated."""

    final_logits_bias: Tensor | None

    def __init__(self, config: MarianConfig, *, output_heads: Collection[str] = ()) -> None:
        super().__init__()
        self.config, self.begin = config, config.decoder_start_token_id
        self.suppressed = (config.pad_token_id,)
        layer = bart.layer_config(config)
        self.embedding = self._embedding(self.vocab_sizes[0])
        self.target_embedding = None if config.share_embeddings else self._embedding(self.vocab_sizes[1])
        self.encoder = Stack(Block(layer) for _ in range(config.num_hidden_layers))
        self.decoder = Stack(Block(bart.decoder_layer(layer, config)) for _ in range(config.num_decoder_layers))
        bias = torch.zeros(1, self.vocab_sizes[1]) if "final_logits_bias" in output_heads else None
        self.register_buffer("final_logits_bias", bias)
        normal_init(self)

    def _embedding(self, vocabulary: int) -> TextEmbedding:
        config = self.config
        positions = SinusoidalPositions(config.hidden_size, arrangement="halves")
        return TextEmbedding(
            vocabulary, config.hidden_size, positions=positions, dropout=config.dropout, scaled=config.scale_embedding
        )

    @property
    def decoder_embedding(self) -> TextEmbedding:
        return self.target_embedding or self.embedding

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """The vocabulary sizes of source and target."""
        return self.config.vocab_size, self.config.target_vocab_size or self.config.vocab_size

    def logits(self, hidden: Tensor) -> Tensor:
        bias = None if self.final_logits_bias is None else self.final_logits_bias[0]
        return F.linear(hidden, self.decoder_embedding.tokens.weight, bias)


FAMILY = Family(
    name="marian",
    title="a Marian",
    year=2018,
    description="the encoder-decoder of the OPUS-MT translators, sinusoidal positions",
    model_class=Marian,
    config_class=MarianConfig,
    capabilities=frozenset({"encoder-decoder", "translation"}),
    stacks=("encoder", "decoder"),
    output_heads=("final_logits_bias",),
    checkpoints=(
        Checkpoint("Helsinki-NLP/opus-mt-en-de", 73_886_208),
        Checkpoint(
            "Helsinki-NLP/opus-mt-en-fr",
            74_609_664,
            {"vocab_size": 59514, "pad_token_id": 59513, "decoder_start_token_id": 59513},
        ),
    ),
)
