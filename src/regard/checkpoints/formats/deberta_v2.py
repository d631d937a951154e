"""The files of a DeBERTa: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of, qkv
from regard.checkpoints.formats import bert
from regard.errors import InputError
from regard.models.deberta_v2 import DebertaV2Config

BASE: Table = {
    **bert.BASE,
    **bert.SEGMENTS,
    "relative.table.weight": "encoder.rel_embeddings.weight",
    "relative.norm.{p}": "encoder.LayerNorm.{p}",
    "encoder.layers.0.conv.{p}": "encoder.conv.conv.{p}",
    "encoder.layers.0.conv_norm.{p}": "encoder.conv.LayerNorm.{p}",
}
LAYER: Table = {
    **bert.LAYER,
    "attention.project.{p}": qkv("attention.self.", ("query_proj", "key_proj", "value_proj")),
    "attention.score.query.{p}": "attention.self.pos_query_proj.{p}",
    "attention.score.key.{p}": "attention.self.pos_key_proj.{p}",
}
HEAD = bert.mlm_head("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm", "lm_predictions.lm_head.bias")


def tensor_names(config: DebertaV2Config) -> TensorNames:
    unused = "position_ids" if config.position_biased_input else r"(position_ids|position_embeddings\.weight)"
    return TensorNames(
        "deberta.",
        BASE,
        {("encoder.layers", "encoder.layer"): LAYER},
        {"mlm_head": bert.NAMES.output_heads["mlm_head"] if config.legacy else HEAD},
        copies=bert.NAMES.copies if config.legacy else {},
        buffers=rf"embeddings\.{unused}",
    )


DEFAULTS = {  # what transformers assumes if config.json lacks a key
    "pos_att_type": [],
    "share_att_key": False,
    "position_buckets": None,
    "max_relative_positions": None,
    "norm_rel_ebd": "none",
    "position_biased_input": True,
    "conv_kernel_size": None,
    "conv_act": "tanh",
}
UNLIMITED = ("position_buckets", "max_relative_positions", "conv_kernel_size")  # None for numbers below 1


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    if document.get("relative_attention") is not True:
        raise InputError(
            f"relative_attention is {str(document.get('relative_attention'))[:60]}; Regard's deberta-v2 supports only "
            "true: without relative positions the model is a BERT"
        )
    for key in ("embedding_size", "pooler_hidden_size"):
        if document.get(key) not in (None, fields["hidden_size"]):
            raise InputError(f"{key} is {str(document[key])[:60]}; Regard's deberta-v2 supports only hidden_size")
    terms = fields["pos_att_type"]
    terms = [term.strip() for term in terms.lower().split("|")] if isinstance(terms, str) else terms
    if not isinstance(terms, list | tuple) or sorted(map(str, terms)) not in (["c2p"], ["p2c"], ["c2p", "p2c"]):
        raise InputError(f"pos_att_type is {str(terms)[:60]}; expected c2p, p2c or both")
    norms = str(fields["norm_rel_ebd"]).lower().split("|")
    fields["pos_att_type"] = terms
    fields["norm_rel_ebd"] = "layer_norm" if "layer_norm" in map(str.strip, norms) else "none"
    for name in UNLIMITED:
        if isinstance(fields[name], int) and fields[name] < 1:
            fields[name] = None
    if fields["conv_kernel_size"] is None:
        fields.pop("conv_act")
        fields.pop("conv_groups", None)


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for name in UNLIMITED:
        document[name] = fields[name] or -1
    if fields["conv_kernel_size"] is None:
        for name in ("conv_kernel_size", "conv_groups", "conv_act"):
            del document[name]


POOLED = {"pool.0": "pooler.dense", "output": "classifier"}
FORMAT = FileFormat(
    keys_of(DebertaV2Config, without=("embedding_size", "position_offset"), **bert.RENAMED),
    tensor_names,
    {"pooler_hidden_act": "gelu"},
    DEFAULTS,
    {"relative_attention": True},
    read=read,
    write=write,
    class_prefix="DebertaV2",
    task_heads={"SequenceClassification": POOLED, "MultipleChoice": POOLED},
)
