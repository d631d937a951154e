"""GTE ("new" in files that name code): a BERT with rotary positions and gated feed-forward layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import nomic_bert
from regard.models.family import Checkpoint, shape
from regard.nn.block import LayerConfig


@dataclass(frozen=True)
class GteConfig(nomic_bert.NomicBertConfig):
    """gte-multilingual-base by default, without the scaling of its rotary positions."""

    family: str = "gte"
    vocab_size: int = 250048
    type_vocab_size: int = 1
    hidden_act: str = "gelu"
    dropout: float = 0.1
    rope_theta: float = 160000.0
    pad_token_id: int = 1


class Gte(nomic_bert.NomicBert):
    """`model(ids, layout)` returns the last hidden state, as for `Bert`."""

    def layer_settings(self, layer: LayerConfig) -> LayerConfig:
        return replace(layer, gated=True, ffn_inner_bias=False, ffn_dropout=self.config.dropout)


ENGLISH = {"vocab_size": 30528, "type_vocab_size": 0, "pad_token_id": 0}
LARGE = {**ENGLISH, "type_vocab_size": 2, **shape(1024, 24, 16)}
FAMILY = replace(
    nomic_bert.FAMILY,
    name="gte",
    title="a GTE",
    model_class=Gte,
    config_class=GteConfig,
    mlm_activation="gelu",
    checkpoints=(
        Checkpoint("Alibaba-NLP/gte-multilingual-base", 305_368_320, {}, ()),
        Checkpoint("Alibaba-NLP/gte-base-en-v1.5", 136_776_192, ENGLISH, ()),
        Checkpoint("Alibaba-NLP/gte-large-en-v1.5", 434_139_136, LARGE, ()),
    ),
)
