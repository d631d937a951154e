"""The files of a GPT-Neo: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.checkpoints.file_format import NOTHING, FileFormat, Table, keys_of, qkv
from regard.checkpoints.formats import gpt2
from regard.errors import InputError
from regard.models.gpt_neo import KINDS, GptNeoConfig

LAYER: Table = {
    **gpt2.LAYER,
    "attention.project.{p}": qkv("attn.attention.", ("q_proj", "k_proj", "v_proj")),
    "attention.output.{p}": "attn.attention.out_proj.{p}",
}
NAMES = replace(
    gpt2.NAMES,
    layers={("decoder.layers", "h"): LAYER},
    buffers=r"h\.\d+\.attn\.attention\.(masked_)?bias",
    transposed=NOTHING,
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    gpt2.read(fields, document)
    depth = fields["num_hidden_layers"]
    found: object = fields.pop("attention_types", None)
    if not isinstance(depth, int) or found is None:
        return
    layers: list[str] = []
    for entry in found if isinstance(found, list) else [None]:
        kinds, count = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if not isinstance(kinds, list) or not set(map(str, kinds)) <= set(KINDS) or not 0 < len(kinds) <= depth:
            raise InputError(f"attention_types is {str(found)[:60]}; expected [[[{', '.join(KINDS)}], 6]]")
        if type(count) is not int or not 0 < count <= depth:
            raise InputError(f"attention_types repeats layers {count!r} times; expected 1 to {depth}")
        layers += kinds * count
    if len(layers) != depth:
        raise InputError(f"attention_types has {len(layers)} layers, but num_layers is {depth}")
    period = next(size for size in range(1, depth + 1) if layers == (layers[:size] * depth)[:depth])
    fields["attention_types"] = " ".join(layers[:period])


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    kinds, depth = fields["attention_types"].split(), fields["num_hidden_layers"]
    whole, rest = divmod(depth, len(kinds))
    document["attention_types"] = [entry for entry in ([kinds, whole], [kinds[:rest], 1]) if entry[0] and entry[1]]


FORMAT = FileFormat(
    keys_of(
        GptNeoConfig,
        num_hidden_layers="num_layers",
        num_attention_heads="num_heads",
        hidden_act="activation_function",
        layer_norm_eps="layer_norm_epsilon",
        dropout="resid_dropout",
        embedding_dropout="embed_dropout",
    ),
    NAMES,
    {"tie_word_embeddings": True},
    optional=("intermediate_size",),
    read=read,
    write=write,
    class_prefix="GPTNeo",
    classes={(): "ForCausalLM"},
    model_type="gpt_neo",
    task_heads={"SequenceClassification": {"output": "score"}},
)
