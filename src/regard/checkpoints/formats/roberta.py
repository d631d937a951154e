"""The files of a RoBERTa: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, TensorNames
from regard.checkpoints.formats import bert

NAMES = TensorNames(
    "roberta.",
    {**bert.BASE, **bert.SEGMENTS},
    {("encoder.layers", "encoder.layer"): bert.LAYER},
    {
        "pooler": bert.POOLER,
        "mlm_head": {
            "mlm_head.linear.{p}": "lm_head.dense.{p}",
            "mlm_head.norm.{p}": "lm_head.layer_norm.{p}",
            "mlm_head.bias": "lm_head.bias",
        },
    },
    copies={"lm_head.decoder.weight": bert.TOKENS, "lm_head.decoder.bias": "lm_head.bias"},
    buffers=r"(roberta\.)?embeddings\.position_ids",
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    padding = fields.setdefault("pad_token_id", 1)
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
    bert.architectures("Roberta"),
    lambda config: NAMES,
    bert.FIXED,
    read=read,
    write=write,
    class_prefix="Roberta",
    task_heads=TASK_HEADS,
)
