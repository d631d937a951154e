"""DeBERTa-v2, and DeBERTa-v3: a BERT whose attention scores read the relative positions of tokens (disentangled)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError
from regard.models import bert
from regard.models.family import Checkpoint, Family, shape
from regard.nn.attention import Attention
from regard.nn.block import Block, LayerConfig, TransformerLayer
from regard.nn.disentangled import DisentangledScore, RelativePositions
from regard.nn.masks import Context, Layout, from_padded, to_padded
from regard.nn.training import Dropout, normal_init

CONV_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": F.relu}


@dataclass(frozen=True)
class DebertaV2Config(bert.BertConfig):
    """DeBERTa-v3 base by default.

    `pos_att_type` lists the terms of the attention scores. Distances have `position_buckets` buckets in each direction,
    up to `max_relative_positions`; None: one for each, and as many distances as positions. `share_att_key` projects
    their vectors with the matrices of the tokens. `position_biased_input` adds position embeddings to the tokens.
    `conv_kernel_size` adds a convolution to the first layer. `legacy` chooses between two names of the masked-LM head.
    """

    family: str = "deberta-v2"
    vocab_size: int = 128100
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7
    pos_att_type: tuple[str, ...] = ("p2c", "c2p")
    share_att_key: bool = True
    position_buckets: int | None = 256
    max_relative_positions: int | None = None
    norm_rel_ebd: Literal["none", "layer_norm"] = "layer_norm"
    position_biased_input: bool = False
    conv_kernel_size: int | None = None
    conv_groups: int = 1
    conv_act: Literal["tanh", "gelu", "relu"] = "gelu"
    legacy: bool = True


class ConvBlock(Block):
    """A layer to whose output a convolution of its input is added, with a norm: the first one of DeBERTa-v2 xlarge."""

    def __init__(self, layer: LayerConfig, *, kernel: int, groups: int, activation: str) -> None:
        super().__init__(layer)
        if kernel % 2 == 0:
            raise InputError(f"conv_kernel_size is {kernel}; expected an odd number, which keeps the length of a text")
        self.conv = nn.Conv1d(layer.width, layer.width, kernel, padding=kernel // 2, groups=groups)
        self.conv_norm = layer.new_norm()
        self.activation, self.dropout = CONV_ACTIVATIONS[activation], Dropout(layer.dropout)

    def forward(self, x: Tensor, context: Context | Layout) -> Tensor:
        context = Context.of(context)
        output, update = super().forward(x, context), self._convolve(x, context.layout)
        result: Tensor = self.conv_norm(output + self.activation(self.dropout(context.select(update))))
        return result

    def _convolve(self, x: Tensor, layout: Layout) -> Tensor:
        padded, rectangle = to_padded(x, layout)
        if rectangle.mask is not None:
            padded = padded.masked_fill(~rectangle.mask[..., None], 0.0)
        return from_padded(self.conv(padded.transpose(1, 2)).transpose(1, 2), layout)


class DebertaV2(bert.Bert):
    """`model(ids, layout)` returns the last hidden state, as for `Bert`. All layers share the vectors of distances."""

    config: DebertaV2Config

    def __init__(self, config: DebertaV2Config, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__(config, output_heads=output_heads)
        if not config.position_biased_input:
            self.embedding.positions = None
        distance, width = config.max_relative_positions or config.max_position_embeddings, config.hidden_size
        self.relative = RelativePositions(
            width,
            config.position_buckets or distance,
            max_distance=None if config.position_buckets is None else distance,
            norm=nn.LayerNorm(width, eps=config.layer_norm_eps) if config.norm_rel_ebd == "layer_norm" else None,
        )
        normal_init(self.relative)
        for block in self.encoder.layers:
            assert isinstance(block, TransformerLayer)
            block.attention.score = self._score(block.attention)
            normal_init(block.attention.score)

    def new_layers(self, layer: LayerConfig) -> Iterable[nn.Module]:
        """Return layers whose scores are scaled by the number of their terms."""
        config = self.config
        width = config.hidden_size // config.num_attention_heads
        layer = LayerConfig.from_model_config(config, scale=1 / math.sqrt(width * (1 + len(config.pos_att_type))))
        layers = [Block(layer) for _ in range(config.num_hidden_layers)]
        if config.conv_kernel_size is not None:
            settings = {"kernel": config.conv_kernel_size, "groups": config.conv_groups}
            layers[0] = ConvBlock(layer, **settings, activation=config.conv_act)
        return layers

    def _score(self, attention: Attention) -> DisentangledScore:
        terms, shared, width = self.config.pos_att_type, self.config.share_att_key, self.config.hidden_size
        return DisentangledScore(
            self.relative,
            terms=terms,
            shared=attention.project if shared else None,
            query=nn.Linear(width, width) if "p2c" in terms and not shared else None,
            key=nn.Linear(width, width) if "c2p" in terms and not shared else None,
            dropout=self.config.dropout,
        )


FAMILY = Family(
    name="deberta-v2",
    title="a DeBERTa",
    year=2021,
    description="BERT with disentangled attention, v2 and v3; head: masked language model",
    model_class=DebertaV2,
    config_class=DebertaV2Config,
    capabilities=frozenset({"text-encoder", "masked-lm", "segments", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("mlm_head",),
    pooler_activation="gelu",
    checkpoints=(
        Checkpoint("microsoft/deberta-v3-xsmall", 70_682_112, shape(384, 12, 6), ()),
        Checkpoint("microsoft/deberta-v3-small", 141_304_320, shape(768, 6, 12), ()),
        Checkpoint("microsoft/deberta-v3-base", 183_831_552, {}, ()),
        Checkpoint("microsoft/deberta-v3-large", 434_012_160, shape(1024, 24, 16), ()),
        Checkpoint("microsoft/mdeberta-v3-base", 278_218_752, {"vocab_size": 251000}, ()),
    ),
)
