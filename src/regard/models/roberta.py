"""RoBERTa: a BERT whose position table starts with two unused rows. XLM-RoBERTa and CamemBERT are RoBERTas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.models import bert
from regard.models.family import Checkpoint, Family, FileFormat, TensorNames, shape

BASE = {
    "vocab_size": 50265,
    "max_position_embeddings": 512,
    "position_offset": 2,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
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
FILE_FORMAT = FileFormat(
    bert.KEYS,
    bert.architectures("Roberta"),
    lambda config: NAMES,
    bert.FIXED,
    read=read,
    write=write,
    class_prefix="Roberta",
    task_heads=TASK_HEADS,
)
FAMILY = Family(
    name="roberta",
    title="a RoBERTa",
    year=2019,
    description="BERT trained longer, byte-level BPE; heads: pooler, masked language model",
    model_class=bert.Bert,
    config_class=bert.BertConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "pooling", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("pooler", "mlm_head"),
    masked_activation="gelu",
    checkpoints=(
        Checkpoint("FacebookAI/roberta-base", 124_697_433, BASE, ("mlm_head",)),
        Checkpoint("FacebookAI/roberta-large", 355_412_057, {**BASE, **shape(1024, 24, 16)}, ("mlm_head",)),
    ),
    num_separators=2,
    file_format=FILE_FORMAT,
)
