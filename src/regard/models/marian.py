"""Marian, the architecture of the OPUS-MT translators: the Transformer of 2017 with a bias of the output layer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from regard.models import bart
from regard.models.family import Checkpoint
from regard.nn.block import LayerConfig
from regard.nn.embedding import SinusoidalPositions, TextEmbedding


@dataclass(frozen=True)
class MarianConfig(bart.BartConfig):
    """OPUS-MT's usual size. `share_embeddings`: one matrix for source, target and output, else one for the source."""

    family: str = "marian"
    vocab_size: int = 58101
    target_vocab_size: int | None = None  # None: that of the source
    hidden_size: int = 512
    num_attention_heads: int = 8
    decoder_attention_heads: int = 8
    intermediate_size: int = 2048
    decoder_ffn_dim: int = 2048
    max_position_embeddings: int = 512
    hidden_act: str = "silu"
    scale_embedding: bool = True
    share_embeddings: bool = True
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pad_token_id: int = 58100
    bos_token_id: int | None = None
    eos_token_id: int = 0
    decoder_start_token_id: int = 58100

    def __post_init__(self) -> None:
        if self.share_embeddings and self.target_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                "a shared embedding needs one vocabulary: set share_embeddings=False or drop target_vocab_size"
            )


class Marian(bart.Bart):
    """The decoder starts with the padding token, which is never generated."""

    config: MarianConfig

    def __init__(self, config: MarianConfig, *, output_heads: Collection[str] = ()) -> None:
        super().__init__(config, output_heads=output_heads)
        self.suppressed = (config.pad_token_id,)

    def add_embeddings(self, layer: LayerConfig) -> None:
        self.embedding = self._embedding(self.vocab_sizes[0])
        self.target_embedding = None if self.config.share_embeddings else self._embedding(self.vocab_sizes[1])

    def _embedding(self, vocabulary: int) -> TextEmbedding:
        config = self.config
        positions = SinusoidalPositions(config.hidden_size, arrangement="halves")
        return TextEmbedding(
            vocabulary, config.hidden_size, positions=positions, dropout=config.dropout, scaled=config.scale_embedding
        )


FAMILY = replace(
    bart.FAMILY,
    name="marian",
    title="a Marian",
    year=2018,
    description="the encoder-decoder of the OPUS-MT translators, sinusoidal positions",
    model_class=Marian,
    config_class=MarianConfig,
    capabilities=frozenset({"encoder-decoder", "translation"}),
    checkpoints=(
        Checkpoint("Helsinki-NLP/opus-mt-en-de", 73_886_208),
        Checkpoint(
            "Helsinki-NLP/opus-mt-en-fr",
            74_609_664,
            {"vocab_size": 59514, "pad_token_id": 59513, "decoder_start_token_id": 59513},
        ),
    ),
)
