"""NomicBERT: a BERT with rotary positions and gated feed-forward layers, without biases in its layers.

GTE builds on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import nn

from regard.models import bert
from regard.models.family import Checkpoint
from regard.nn.block import Block, LayerConfig
from regard.nn.rotary import RopeConfig


@dataclass(frozen=True)
class NomicBertConfig(RopeConfig, bert.BertConfig):
    """nomic-embed-text-v1.5 by default."""

    family: str = "nomic-bert"
    vocab_size: int = 30528
    max_position_embeddings: int = 8192
    hidden_act: str = "silu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    rope_theta: float = 1000.0


class NomicBert(bert.Bert):
    """`model(ids, layout)` returns the last hidden state, as for `Bert`."""

    config: NomicBertConfig

    def new_positions(self, width: int) -> nn.Module | None:
        return None

    def new_layers(self, layer: LayerConfig) -> Iterable[nn.Module]:
        config = self.config
        rotary = config.new_rotary(layer.width // layer.heads, config.max_position_embeddings)
        layer = self.layer_settings(layer)
        return (Block(layer, positions=rotary) for _ in range(config.num_hidden_layers))

    def layer_settings(self, layer: LayerConfig) -> LayerConfig:
        """Return what differs from the layers of a BERT."""
        return replace(layer, gated=True, bias=False)


FAMILY = replace(
    bert.FAMILY,
    name="nomic-bert",
    title="a NomicBERT",
    year=2024,
    description="BERT with rotary positions and gated layers, 8,192 tokens; heads: pooler, masked language model",
    model_class=NomicBert,
    config_class=NomicBertConfig,
    capabilities=bert.FAMILY.capabilities - {"next-sentence"},
    output_heads=("pooler", "mlm_head"),
    checkpoints=(
        Checkpoint("nomic-ai/nomic-embed-text-v1.5", 136_731_648, {}, ()),
        Checkpoint("nomic-ai/nomic-embed-text-v1", 136_731_648, {}, ()),
    ),
    pretraining=None,
)
