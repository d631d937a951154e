"""The files of a RoBERTa: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.checkpoints.file_format import FileFormat
from regard.checkpoints.formats import bert

NAMES = replace(
    bert.NAMES,
    prefix="roberta.",
    output_heads={
        "pooler": bert.POOLER,
        "mlm_head": bert.mlm_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    },
    copies={"lm_head.decoder.weight": bert.TOKENS, "lm_head.decoder.bias": "lm_head.bias"},
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    padding = fields["pad_token_id"]
    if isinstance(padding, int) and isinstance(fields["max_position_embeddings"], int):
        fields["position_offset"] = padding + 1
        fields["max_position_embeddings"] -= padding + 1


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["max_position_embeddings"] += fields["position_offset"]


TASK_HEADS = {
    "SequenceClassification": {"pool.0": "classifier.dense", "output": "classifier.out_proj"},
    "MultipleChoice": {"pool.0": "roberta.pooler.dense", "output": "classifier"},
}
FORMAT = FileFormat(
    bert.KEYS,
    NAMES,
    bert.FIXED,
    {"pad_token_id": 1},
    read=read,
    write=write,
    class_prefix="Roberta",
    task_heads=TASK_HEADS,
)
