"""The files of a SmolLM3: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.formats import llama
from regard.errors import InputError


def check_full_attention(document: Mapping[str, object]) -> None:
    """Refuse layers with a window."""
    kinds = document.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or set(map(str, kinds)) - {"full_attention"}):
        raise InputError(f"layer_types is {str(kinds)[:200]}; only full_attention is supported for this family")


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    llama.read(fields, document)
    check_full_attention(document)
    depth, interval = fields["num_hidden_layers"], document.get("no_rope_layer_interval", 4)
    if fields.get("no_rope_layers") is None and interval != 4:
        if not isinstance(depth, int) or not 0 < depth <= 1000 or not isinstance(interval, int) or interval < 1:
            raise InputError(f"no_rope_layer_interval is {str(interval)[:60]}; expected a number above 0")
        fields["no_rope_layers"] = [int((number + 1) % interval != 0) for number in range(depth)]


KEYS = {**llama.KEYS, **{name: name for name in ("attention_bias", "mlp_bias", "no_rope_layers")}}
FORMAT = llama.file_format(
    "SmolLM3", KEYS, read=read, fixed={"use_sliding_window": False}, class_prefixes=llama.ANSWERING
)
