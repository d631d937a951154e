"""The files of an ALBERT: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of, prefixed, qkv
from regard.checkpoints.formats import bert
from regard.models.albert import AlbertConfig

LAYER: Table = {
    "attention.project.{p}": qkv("attention.", ("query", "key", "value")),
    "attention.output.{p}": "attention.dense.{p}",
    "attention_residual.norm.{p}": "attention.LayerNorm.{p}",
    "ffn.inner.{p}": "ffn.{p}",
    "ffn.outer.{p}": "ffn_output.{p}",
    "ffn_residual.norm.{p}": "full_layer_layer_norm.{p}",
}


def tensor_names(config: AlbertConfig) -> TensorNames:
    base = {**bert.BASE, **bert.SEGMENTS, "embedding.project.{p}": "encoder.embedding_hidden_mapping_in.{p}"}
    for number in range(config.num_hidden_layers):
        group = f"encoder.albert_layer_groups.{config.group(number)}.albert_layers.0."
        base |= prefixed(LAYER, f"encoder.layers.{number}.", group)
    return TensorNames(
        "albert.",
        base,
        output_heads={
            "pooler": {"pooler.linear.{p}": "{base}pooler.{p}"},
            "mlm_head": bert.mlm_head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
            "nsp_head": {"nsp_head.{p}": "sop_classifier.classifier.{p}"},
        },
        copies={"predictions.decoder.weight": bert.TOKENS, "predictions.decoder.bias": "predictions.bias"},
        buffers=bert.NAMES.buffers,
    )


POOLED = {"pool.0": "albert.pooler", "output": "classifier"}
FORMAT = FileFormat(
    keys_of(AlbertConfig, without=("position_offset",), **bert.RENAMED),
    tensor_names,
    {**bert.FIXED, "inner_group_num": 1},
    class_prefix="Albert",
    task_heads={"SequenceClassification": POOLED, "MultipleChoice": POOLED},
)
