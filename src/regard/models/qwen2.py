"""Qwen2 and Qwen2.5: a Llama with biases of queries, keys and values; its last layers may have a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import InputError
from regard.models import llama
from regard.models.family import Checkpoint


@dataclass(frozen=True)
class Qwen2Config(llama.LlamaConfig):
    """Qwen2.5 7B by default."""

    family: str = "qwen2"
    vocab_size: int = 152064
    hidden_size: int = 3584
    num_hidden_layers: int = 28
    num_attention_heads: int = 28
    num_key_value_heads: int | None = 4
    intermediate_size: int = 18944
    max_position_embeddings: int = 32768
    qkv_bias: bool = True
    rope_theta: float = 1000000.0


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
TIED = {"vocab_size": 151936, "tie_word_embeddings": True, "num_key_value_heads": 2}

FAMILY = replace(
    llama.FAMILY,
    name="qwen2",
    title="a Qwen2",
    year=2024,
    description="Llama with biases of queries, keys and values; also Qwen2.5",
    config_class=Qwen2Config,
    checkpoints=(
        Checkpoint("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768, {**TIED, **llama.size(896, 24, 14, 4864)}, ()),
        Checkpoint("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, {**TIED, **llama.size(1536, 28, 12, 8960)}, ()),
        Checkpoint("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, {}, ("output",)),
    ),
    file_format=llama.file_format("Qwen2", KEYS, read=read, write=write),
    gguf=llama.gguf_format("qwen2"),
)
