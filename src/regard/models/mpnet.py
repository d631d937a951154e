"""MPNet: a BERT with one relative position bias for the attention of all layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from regard.models import bert, roberta
from regard.models.family import Checkpoint, Family, FileFormat, TensorNames, qkv
from regard.nn.embedding import RelativePositionBias
from regard.nn.training import normal_init


class MPNet(bert.Bert):
    """`model(ids, layout)` returns the last hidden state, as for `Bert`. The bias is that of T5."""

    def __init__(self, config: bert.BertConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__(config, output_heads=output_heads)
        self.encoder.relative = RelativePositionBias(config.num_attention_heads)
        normal_init(self.encoder.relative)


LAYER = {
    **bert.LAYER,
    "attention.project.{p}": qkv("attention.attn.", ("q", "k", "v")),
    "attention.output.{p}": "attention.attn.o.{p}",
    "attention_residual.norm.{p}": "attention.LayerNorm.{p}",
}
NAMES = TensorNames(
    "mpnet.",
    {**bert.BASE, "encoder.relative.table.weight": "encoder.relative_attention_bias.weight"},
    {("encoder.layers", "encoder.layer"): LAYER},
    roberta.NAMES.output_heads,
    copies=roberta.NAMES.copies,
    buffers=r"(mpnet\.)?embeddings\.position_ids",
)
POSITION_OFFSET = 2  # for any padding id


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    fields["type_vocab_size"], fields["position_offset"] = 0, POSITION_OFFSET
    fields.setdefault("pad_token_id", 1)
    if isinstance(fields["max_position_embeddings"], int):
        fields["max_position_embeddings"] -= POSITION_OFFSET


BASE = {
    "vocab_size": 30527,
    "position_offset": POSITION_OFFSET,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
FAMILY = Family(
    name="mpnet",
    title="an MPNet",
    year=2020,
    description="BERT with a relative position bias; heads: pooler, masked language model",
    model_class=MPNet,
    config_class=bert.BertConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "pooling", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("pooler", "mlm_head"),
    masked_activation="gelu",
    num_separators=2,
    checkpoints=(
        Checkpoint("microsoft/mpnet-base", 109_518_527, BASE, ("mlm_head",)),
        Checkpoint("sentence-transformers/all-mpnet-base-v2", 109_486_464, BASE, ("pooler",)),
    ),
    file_format=FileFormat(
        {name: key for name, key in bert.KEYS.items() if name != "type_vocab_size"},
        bert.architectures("MPNet"),
        lambda config: NAMES,
        {**bert.FIXED, "relative_attention_num_buckets": 32},  # transformers uses 32 for any value
        read=read,
        write=roberta.write,
        class_prefix="MPNet",
        task_heads={
            **roberta.TASK_HEADS,
            "MultipleChoice": {"pool.0": "mpnet.pooler.dense", "output": "classifier"},
        },
    ),
)
