"""The files of an MPNet: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, TensorNames, qkv
from regard.checkpoints.formats import bert, roberta
from regard.models.mpnet import POSITION_OFFSET

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


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    fields["type_vocab_size"], fields["position_offset"] = 0, POSITION_OFFSET
    fields.setdefault("pad_token_id", 1)
    if isinstance(fields["max_position_embeddings"], int):
        fields["max_position_embeddings"] -= POSITION_OFFSET


FORMAT = FileFormat(
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
)
