"""JinaBERT (v2): a BERT whose scores fall with the distance of query and key (ALiBi), with gated layers.

transformers has no such model; files name the code of their authors, which is not run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from torch import nn

from regard.models import bert
from regard.models.family import Checkpoint, shape
from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import AlibiBias


@dataclass(frozen=True)
class JinaBertConfig(bert.BertConfig):
    """jina-embeddings-v2-base-en by default."""

    family: str = "jina-bert"
    vocab_size: int = 30528
    max_position_embeddings: int = 8192
    attention_dropout: float = 0.0


class JinaBert(bert.Bert):
    """`model(ids, layout)` returns the last hidden state, as for `Bert`."""

    def __init__(self, config: JinaBertConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__(config, output_heads=output_heads)
        self.encoder.relative = AlibiBias(config.num_attention_heads)

    def new_positions(self, width: int) -> nn.Module | None:
        return None

    def new_layers(self, layer: LayerConfig) -> Iterable[nn.Module]:
        layer = replace(layer, gated=True, ffn_inner_bias=False, ffn_dropout=self.config.dropout)
        return (Block(layer) for _ in range(self.config.num_hidden_layers))


FAMILY = replace(
    bert.FAMILY,
    name="jina-bert",
    title="a JinaBERT",
    year=2023,
    description="BERT with ALiBi and gated layers, 8,192 tokens; heads: pooler, masked language model",
    model_class=JinaBert,
    config_class=JinaBertConfig,
    capabilities=bert.FAMILY.capabilities - {"next-sentence"},
    output_heads=("pooler", "mlm_head"),
    checkpoints=(
        Checkpoint("jinaai/jina-embeddings-v2-base-en", 137_368_320, {}, ("pooler",)),
        Checkpoint("jinaai/jina-embeddings-v2-small-en", 32_690_688, shape(512, 4, 8), ("pooler",)),
    ),
    pretraining=None,
)
