"""BART: a post-norm encoder-decoder with learned positions, one token embedding and a norm after each embedding."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch

from regard.models.family import Checkpoint, Family, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import LearnedPositions, TextEmbedding, TiedEmbedding
from regard.nn.encoder_decoder import EncoderDecoder
from regard.nn.stack import Stack
from regard.nn.training import normal_init

OFFSET = 2  # unused rows of the position tables


@dataclass(frozen=True)
class BartConfig:
    """BART base by default. With `norm_first`, as in mBART, both stacks end with a norm."""

    family: str = "bart"
    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 6
    num_decoder_layers: int = 6
    num_attention_heads: int = 12
    decoder_attention_heads: int = 12
    intermediate_size: int = 3072
    decoder_ffn_dim: int = 3072
    max_position_embeddings: int = 1024
    hidden_act: str = "gelu"
    norm_first: bool = False
    scale_embedding: bool = False
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.1
    pad_token_id: int = 1
    bos_token_id: int | None = 0
    eos_token_id: int = 2
    decoder_start_token_id: int = 2
    forced_bos_token_id: int | None = None  # the first token of every output


class Bart(EncoderDecoder):
    """The head "final_logits_bias" (1, V) is added to the logits; like the file's, it is not trained."""

    target_embedding: TextEmbedding | None

    def __init__(self, config: BartConfig, *, output_heads: Collection[str] = ()) -> None:
        super().__init__()
        self.config, self.begin = config, config.decoder_start_token_id
        self.forced_first = config.forced_bos_token_id
        layer = LayerConfig.from_model_config(config)
        self.add_embeddings(layer)
        heads, ffn = config.decoder_attention_heads, config.decoder_ffn_dim
        decoder_layer = replace(layer, heads=heads, ffn=ffn, causal=True, cross=True)
        self.encoder = Stack(
            (Block(layer) for _ in range(config.num_hidden_layers)),
            norm=layer.new_norm() if config.norm_first else None,
        )
        self.decoder = Stack(
            (Block(decoder_layer) for _ in range(config.num_decoder_layers)),
            norm=layer.new_norm() if config.norm_first else None,
        )
        bias = torch.zeros(1, self.vocab_sizes[1]) if "final_logits_bias" in output_heads else None
        self.register_buffer("final_logits_bias", bias)
        normal_init(self)

    def add_embeddings(self, layer: LayerConfig) -> None:
        """Add the embeddings of source and target, for a model with such encoder layers."""
        config = self.config
        self.embedding = TextEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size, offset=OFFSET),
            norm=layer.new_norm(),
            dropout=config.dropout,
            scaled=config.scale_embedding,
        )
        self.target_embedding = TiedEmbedding(
            self.embedding,
            positions=LearnedPositions(config.max_position_embeddings, config.hidden_size, offset=OFFSET),
            norm=layer.new_norm(),
            dropout=config.dropout,
        )


LARGE = {**shape(1024, 12, 16), "num_decoder_layers": 12, "decoder_attention_heads": 16, "decoder_ffn_dim": 4096}
FAMILY = Family(
    name="bart",
    title="a BART",
    year=2019,
    description="encoder-decoder pretrained to restore damaged text",
    model_class=Bart,
    config_class=BartConfig,
    capabilities=frozenset({"encoder-decoder", "text-generation"}),
    stacks=("encoder", "decoder"),
    output_heads=("final_logits_bias",),
    checkpoints=(
        Checkpoint("facebook/bart-base", 139_420_416),
        Checkpoint("facebook/bart-large", 406_291_456, LARGE),
        Checkpoint("facebook/bart-large-cnn", 406_290_432, {**LARGE, "vocab_size": 50264}),
    ),
)
