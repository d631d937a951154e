"""ALBERT: a BERT whose layers share their weights, with small embeddings that are projected to the hidden size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from regard.models import bert
from regard.models.family import Checkpoint, Family, shape
from regard.nn.block import Block, LayerConfig


@dataclass(frozen=True)
class AlbertConfig(bert.BertConfig):
    """ALBERT base by default. The layers of each of `num_hidden_groups` groups share their weights."""

    family: str = "albert"
    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_act: str = "gelu-tanh"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    num_hidden_groups: int = 1

    def group(self, layer: int) -> int:
        """Return the group of a layer; both count from 0."""
        return int(layer / (self.num_hidden_layers / self.num_hidden_groups))


class Albert(bert.Bert):
    """`model(ids, layout)` returns the last hidden state, as for `Bert`. Each layer of a group is the same module.

    `model.nsp_head(pooled)` (B, 2) distinguishes two texts in their order from swapped ones.
    """

    config: AlbertConfig

    def new_layers(self, layer: LayerConfig) -> Iterable[nn.Module]:
        groups = [Block(layer) for _ in range(self.config.num_hidden_groups)]
        return [groups[self.config.group(number)] for number in range(self.config.num_hidden_layers)]


FAMILY = Family(
    name="albert",
    title="an ALBERT",
    year=2020,
    description="BERT whose layers share their weights; heads: pooler, masked language model, sentence order",
    model_class=Albert,
    config_class=AlbertConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "pooling", "segments", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("pooler", "mlm_head", "nsp_head"),
    checkpoints=(
        Checkpoint("albert/albert-base-v2", 11_813_810),
        Checkpoint("albert/albert-large-v2", 17_847_474, shape(1024, 24, 16)),
        Checkpoint("albert/albert-xlarge-v2", 59_021_490, shape(2048, 24, 16)),
        Checkpoint("albert/albert-xxlarge-v2", 223_158_450, shape(4096, 12, 64)),
    ),
)
