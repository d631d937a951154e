"""The files of a ModernBERT: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of
from regard.checkpoints.formats import bert
from regard.errors import InputError
from regard.models.modernbert import ModernBertConfig

LAYER: Table = {
    "attention.project.weight": "attn.Wqkv.weight",
    "attention.output.weight": "attn.Wo.weight",
    "attention_residual.norm.weight": "attn_norm.weight",
    "ffn.inner.weight": "mlp.Wi.weight",
    "ffn.outer.weight": "mlp.Wo.weight",
    "ffn_residual.norm.weight": "mlp_norm.weight",
}


def tensor_names(config: ModernBertConfig) -> TensorNames:
    """Return the names of a model, which may have an output matrix of its own."""
    tied = config.tie_word_embeddings
    own: Table = {} if tied else {"mlm_head.decoder.weight": "decoder.weight"}
    return TensorNames(
        "model.",
        {
            "embedding.tokens.weight": "embeddings.tok_embeddings.weight",
            "embedding.norm.weight": "embeddings.norm.weight",
            "encoder.norm.weight": "final_norm.weight",
        },
        {("encoder.layers", "layers"): LAYER},
        {"mlm_head": {**bert.mlm_head("head.dense", "head.norm", "decoder.bias"), **own}},
        copies={"decoder.weight": "{base}embeddings.tok_embeddings.weight"} if tied else {},
        shared=r"head\.(dense|norm)\.weight",
    )


TYPES = {False: "sliding_attention", True: "full_attention"}  # of layers, by whether they are global


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    """Read the kinds of layers and the rotary frequencies in the current format of transformers or in that of 4.x."""
    kinds = document.get("layer_types")
    if isinstance(kinds, list):
        if not set(map(str, kinds)) <= set(TYPES.values()) or len(kinds) != fields["num_hidden_layers"]:
            raise InputError(
                f"layer_types should be {' or '.join(TYPES.values())} for each of {fields['num_hidden_layers']} "
                f"layers, got {str(kinds)[:200]}"
            )
        every = kinds.index(TYPES[True], 1) if TYPES[True] in kinds[1:] else max(len(kinds), 1)
        if kinds == [TYPES[number % every == 0] for number in range(len(kinds))]:
            fields["global_attn_every_n_layers"] = every
        else:
            fields["global_layers"] = [number for number, kind in enumerate(kinds) if kind == TYPES[True]]
    ropes = document.get("rope_parameters")
    for is_global, name in ((True, "global_rope_theta"), (False, "local_rope_theta")):
        rope = ropes.get(TYPES[is_global]) if isinstance(ropes, dict) else None
        if isinstance(rope, dict):
            if rope.get("rope_type", "default") != "default":
                raise InputError(f"rope_type is {rope['rope_type']!r}; Regard's modernbert supports only 'default'")
            if rope.get("rope_theta") is not None:
                fields[name] = rope["rope_theta"]


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    if fields["global_layers"] is not None:
        document["layer_types"] = [TYPES[i in fields["global_layers"]] for i in range(fields["num_hidden_layers"])]


TRANSFORM = {"pool.0": "head.dense", "pool.2": "head.norm", "output": "classifier"}
FORMAT = FileFormat(
    keys_of(
        ModernBertConfig,
        without=("global_layers",),
        hidden_act="hidden_activation",
        layer_norm_eps="norm_eps",
        dropout="embedding_dropout",
    ),
    tensor_names,
    {
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
        "classifier_activation": "gelu",
        "rope_scaling": None,
    },
    written={"classifier_pooling": "cls"},
    head_values={"classifier_pooling": ("cls", "mean")},
    pooling_key="classifier_pooling",
    read=read,
    write=write,
    class_prefix="ModernBert",
    task_heads=dict.fromkeys(
        ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice"), TRANSFORM
    ),
)
