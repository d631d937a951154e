"""The files of a Gemma: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.formats import llama


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    llama.read(fields, document)
    # Published files of Gemma say "gelu" and mean its approximation; transformers reads them so.
    if fields.get("hidden_act") == "gelu":
        fields["hidden_act"] = "gelu_pytorch_tanh"


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    llama.write(document, fields)
    # For missing ones, transformers has fixed defaults.
    document.setdefault("num_key_value_heads", fields["num_attention_heads"])
    document.setdefault("head_dim", fields["hidden_size"] // fields["num_attention_heads"])
    for key in ("hidden_act", "hidden_activation"):
        if document.get(key) == "gelu_new":  # the same function; transformers' Gemma calls it by another name
            document[key] = "gelu_pytorch_tanh"


KEYS = {**llama.KEYS, "attention_bias": "attention_bias"}
CAUSAL = {"use_bidirectional_attention": False}  # Gemma 3 has a family for the others
FORMAT = llama.file_format("Gemma", KEYS, fixed=CAUSAL, read=read, write=write)
