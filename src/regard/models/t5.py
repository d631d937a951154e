"""T5, including v1.1 and Flan: an encoder-decoder with relative position biases."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.family import Checkpoint, Family, PretrainingRecipe, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import RelativePositionBias, TextEmbedding
from regard.nn.encoder_decoder import EncoderDecoder
from regard.nn.stack import Stack


@dataclass(frozen=True)
class T5Config:
    """T5 small by default. `scale_decoder_outputs` scales hidden states before the output layer, as is usual if it is
    tied to the embedding matrix. Without the head "output" it is always tied."""

    family: str = "t5"
    vocab_size: int = 32128
    hidden_size: int = 512
    head_dim: int = 64
    num_hidden_layers: int = 6
    num_decoder_layers: int = 6
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    hidden_act: str = "relu"
    is_gated_act: bool = False
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_eps: float = 1e-6
    dropout: float = 0.1
    scale_decoder_outputs: bool = True
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0


class T5(EncoderDecoder):
    """A pre-norm encoder-decoder without biases; attention scores are not scaled."""

    def __init__(self, config: T5Config, *, output_heads: Collection[str] = ()) -> None:
        super().__init__()
        self.config, self.begin = config, config.decoder_start_token_id
        everywhere = dict.fromkeys(("attention_dropout", "ffn_dropout"), config.dropout)
        layer = LayerConfig.from_model_config(config, norm_first=True, norm="rms", bias=False, scale=1.0, **everywhere)
        self.embedding = TextEmbedding(config.vocab_size, config.hidden_size, dropout=config.dropout)
        self.encoder = self._stack(layer, config.num_hidden_layers)
        self.decoder = self._stack(replace(layer, causal=True, cross=True), config.num_decoder_layers)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False) if "output" in output_heads else None
        self._initialize()

    def _stack(self, layer: LayerConfig, depth: int) -> Stack:
        config = self.config
        relative = RelativePositionBias(
            config.num_attention_heads,
            buckets=config.relative_attention_num_buckets,
            max_distance=config.relative_attention_max_distance,
            causal=layer.causal,
        )
        layers = (Block(layer) for _ in range(depth))
        return Stack(layers, norm=layer.new_norm(), relative=relative, dropout=config.dropout)

    def _initialize(self) -> None:
        """Initialize by fan-in, with smaller query projections in place of a scale of the attention scores."""
        config, inner = self.config, self.config.num_attention_heads * self.config.head_dim
        nn.init.normal_(self.embedding.tokens.weight)
        for stack in (self.encoder, self.decoder):
            nn.init.normal_(stack.relative.table.weight, 0.0, config.hidden_size**-0.5)  # type: ignore[union-attr, arg-type]
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and ".layers." in name:
                nn.init.normal_(parameter, 0.0, parameter.shape[1] ** -0.5)
                if ".attention.project" in name:
                    parameter.data[:inner] *= config.head_dim**-0.5
                elif ".cross.project.query" in name:
                    parameter.data *= config.head_dim**-0.5

    def logits(self, hidden: Tensor) -> Tensor:
        if self.config.scale_decoder_outputs:
            hidden = hidden * self.config.hidden_size**-0.5
        return F.linear(hidden, (self.output or self.embedding.tokens).weight)


GATED = {"hidden_act": "gelu-tanh", "is_gated_act": True, "scale_decoder_outputs": False}


def config_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the section [model] of pretraining settings."""
    same = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "dropout")
    return {name: settings[name] for name in same} | {
        "hidden_act": settings["activation"],
        "num_decoder_layers": settings["num_hidden_layers"],
        "head_dim": settings["hidden_size"] // settings["num_attention_heads"],
    }


FAMILY = Family(
    name="t5",
    title="a T5",
    year=2019,
    description="text-to-text encoder-decoder with relative positions; also v1.1 and Flan",
    model_class=T5,
    config_class=T5Config,
    capabilities=frozenset({"encoder-decoder", "text-generation"}),
    stacks=("encoder", "decoder"),
    output_heads=("output",),
    checkpoints=(
        Checkpoint("google-t5/t5-small", 60_506_624),
        Checkpoint("google-t5/t5-base", 222_903_552, shape(768, 12, 12, num_decoder_layers=12)),
        Checkpoint(
            "google/flan-t5-small", 76_961_152, shape(512, 8, 6, 1024, num_decoder_layers=8, **GATED), ("output",)
        ),
        Checkpoint(
            "google/flan-t5-base",
            247_577_856,
            shape(768, 12, 12, 2048, num_decoder_layers=12, **GATED),
            ("output",),
        ),
    ),
    pretraining=PretrainingRecipe(
        name="t5",
        objective="span-corruption",
        config_fields=config_fields,
        token_ids={
            "pad_token_id": "pad_token_id",
            "decoder_start_token_id": "pad_token_id",
            "eos_token_id": "eos_token_id",
        },
        defaults={
            "model": {"activation": "relu"},
            "vocabulary": {"kind": "bpe", "lowercase": False},
            "objective": {"sentence_pairs": "none"},
        },
        unused=(
            "model.attention_dropout",
            "data.position_shift_probability",
            "objective.replacement_probabilities",
            "objective.whole_word_mask",
            "objective.sentence_pairs",
            "objective.short_seq_prob",
        ),
    ),
)
