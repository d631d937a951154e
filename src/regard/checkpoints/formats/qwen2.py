"""The files of a Qwen2: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.formats import llama
from regard.errors import InputError


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    llama.read(fields, document)
    if not document.get("use_sliding_window"):
        fields.pop("sliding_window", None)
    elif "sliding_window" in fields:
        fields["max_window_layers"] = document.get("max_window_layers", 28) or None
    depth, first = fields["num_hidden_layers"], fields.get("max_window_layers") or 0
    given = document.get("layer_types")
    if given is None or not isinstance(depth, int) or not isinstance(first, int) or not 0 < depth <= 1000:
        return
    window = "sliding_window" in fields
    expected = ["sliding_attention" if window and i >= first else "full_attention" for i in range(depth)]
    if given != expected:
        raise InputError("layer_types must follow from use_sliding_window and max_window_layers; remove the key")


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    llama.write(document, fields)
    document["use_sliding_window"] = fields["sliding_window"] is not None
    if fields["sliding_window"] is not None:
        document["max_window_layers"] = fields["max_window_layers"] or 0


KEYS = {**llama.KEYS, "sliding_window": "sliding_window"}
FORMAT = llama.file_format("Qwen2", KEYS, read=read, write=write, class_prefixes=llama.ANSWERING)
GGUF = llama.gguf_format("qwen2")
