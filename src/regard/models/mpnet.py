"""MPNet: a BERT with one relative position bias for the attention of all layers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from regard.models import bert, roberta
from regard.models.family import Checkpoint
from regard.nn.embedding import RelativePositionBias
from regard.nn.training import normal_init


class MPNet(bert.Bert):
    """`model(ids, layout)` returns the last hidden state, as for `Bert`. The bias is that of T5."""

    def __init__(self, config: bert.BertConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__(config, output_heads=output_heads)
        self.encoder.relative = RelativePositionBias(config.num_attention_heads)
        normal_init(self.encoder.relative)


POSITION_OFFSET = 2  # for any padding id
BASE = {**roberta.BASE, "vocab_size": 30527, "position_offset": POSITION_OFFSET, "type_vocab_size": 0}
FAMILY = replace(
    roberta.FAMILY,
    name="mpnet",
    title="an MPNet",
    year=2020,
    description="BERT with a relative position bias; heads: pooler, masked language model",
    model_class=MPNet,
    checkpoints=(
        Checkpoint("microsoft/mpnet-base", 109_518_527, BASE, ("mlm_head",)),
        Checkpoint("sentence-transformers/all-mpnet-base-v2", 109_486_464, BASE, ("pooler",)),
    ),
)
