"""The files of a Gemma 2: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.formats import gemma, llama
from regard.errors import InputError

TYPES = {False: "sliding_attention", True: "full_attention"}  # of layers, by whether they are global
LAYER = {
    **llama.LAYER,
    "attention_residual.post_norm.weight": "post_attention_layernorm.weight",
    "ffn_residual.norm.weight": "pre_feedforward_layernorm.weight",
    "ffn_residual.post_norm.weight": "post_feedforward_layernorm.weight",
}


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    gemma.read(fields, document)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if name in document:  # null: no cap
            fields[name] = document[name]
    kinds = document.get("layer_types")
    if isinstance(kinds, list):
        every = kinds.index(TYPES[True]) + 1 if TYPES[True] in kinds else len(kinds) + 1
        if kinds != [TYPES[(number + 1) % every == 0] for number in range(len(kinds))]:
            raise InputError(
                f"layer_types of a Gemma should be {TYPES[True]} for the last of every n layers and {TYPES[False]} for "
                f"the others, got {str(kinds)[:200]}"
            )
        if len(kinds) != fields["num_hidden_layers"]:
            raise InputError(f"layer_types has {len(kinds)} entries for {fields['num_hidden_layers']} layers")
        given = fields.get("sliding_window_pattern")
        # A pattern beyond the last layer makes all of them local, whatever its number.
        if every <= len(kinds) or not (isinstance(given, int) and given > len(kinds)):
            fields["sliding_window_pattern"] = every


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    gemma.write(document, fields)
    every = fields["sliding_window_pattern"]
    document["layer_types"] = [TYPES[(number + 1) % every == 0] for number in range(fields["num_hidden_layers"])]


KEYS = {
    **gemma.KEYS,
    "query_pre_attn_scalar": "query_pre_attn_scalar",
    "sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "hidden_act": "hidden_activation",
}
FORMAT = llama.file_format("Gemma2", KEYS, layer=LAYER, fixed=gemma.CAUSAL, read=read, write=write)
