"""The files of an ELECTRA: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, TensorNames
from regard.checkpoints.formats import bert

NAMES = TensorNames(
    "electra.",
    {**bert.BASE, **bert.SEGMENTS, "embedding.project.{p}": "embeddings_project.{p}"},
    bert.NAMES.layers,
    {
        "mlm_head": bert.mlm_head(
            "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"
        ),
        "discriminator": {
            "discriminator.linear.{p}": "discriminator_predictions.dense.{p}",
            "discriminator.output.{p}": "discriminator_predictions.dense_prediction.{p}",
        },
    },
    copies={"generator_lm_head.weight": bert.TOKENS},
    buffers=bert.NAMES.buffers,
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    if fields["embedding_size"] == fields["hidden_size"]:
        fields["embedding_size"] = None


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["embedding_size"] = fields["embedding_size"] or fields["hidden_size"]


FORMAT = FileFormat(
    {**bert.KEYS, "embedding_size": "embedding_size"},
    NAMES,
    {**bert.FIXED, "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    {"embedding_size": 128},
    read=read,
    write=write,
    class_prefix="Electra",
    task_heads={
        "SequenceClassification": {"pool.0": "classifier.dense", "output": "classifier.out_proj"},
        "MultipleChoice": {"pool.0": "sequence_summary.summary", "output": "classifier"},
    },
)
