"""The files of an MPNet: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.checkpoints.file_format import FileFormat, qkv
from regard.checkpoints.formats import bert, roberta
from regard.models.mpnet import POSITION_OFFSET

LAYER = {
    **bert.LAYER,
    "attention.project.{p}": qkv("attention.attn.", ("q", "k", "v")),
    "attention.output.{p}": "attention.attn.o.{p}",
    "attention_residual.norm.{p}": "attention.LayerNorm.{p}",
}

NAMES = replace(
    roberta.NAMES,
    prefix="mpnet.",
    base={**bert.BASE, "encoder.relative.table.weight": "encoder.relative_attention_bias.weight"},
    layers={("encoder.layers", "encoder.layer"): LAYER},
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    if isinstance(fields["max_position_embeddings"], int):
        fields["max_position_embeddings"] -= POSITION_OFFSET


FORMAT = FileFormat(
    {name: key for name, key in bert.KEYS.items() if name != "type_vocab_size"},
    NAMES,
    {**bert.FIXED, "relative_attention_num_buckets": 32},  # transformers uses 32 for any value
    {"type_vocab_size": 0, "position_offset": POSITION_OFFSET, "pad_token_id": 1},
    read=read,
    write=roberta.write,
    class_prefix="MPNet",
    task_heads={
        **roberta.TASK_HEADS,
        "MultipleChoice": {"pool.0": "mpnet.pooler.dense", "output": "classifier"},
    },
)
