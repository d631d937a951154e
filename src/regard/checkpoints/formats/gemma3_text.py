"""The files of a Gemma 3: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.checkpoints.formats import gemma, gemma2, llama
from regard.errors import InputError


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    """Read the rotary positions of both kinds of layers in the format of transformers 5 or in that of 4."""
    ropes = document.get("rope_parameters")
    if isinstance(ropes, dict) and any(isinstance(rope, dict) for rope in ropes.values()):
        local = ropes.get(gemma2.TYPES[False]) or {}
        if not isinstance(local, dict) or local.get("rope_type", "default") != "default":
            raise InputError(f"the rotary positions of local layers cannot be scaled, got {str(local)[:200]}")
        if local.get("rope_theta") is not None:
            fields["rope_local_base_freq"] = local["rope_theta"]
        document = {**document, "rope_parameters": ropes.get(gemma2.TYPES[True])}
    gemma2.read(fields, document)


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    gemma2.write(document, fields)
    local = {"rope_type": "default", "rope_theta": fields["rope_local_base_freq"]}
    document["rope_parameters"] = {
        gemma2.TYPES[True]: document["rope_parameters"],
        gemma2.TYPES[False]: local,
    }
    document["architectures"] = [name.replace("TextForCausal", "ForCausal") for name in document["architectures"]]


KEYS = gemma2.KEYS | {name: name for name in ("sliding_window_pattern", "rope_local_base_freq")}
FORMAT = llama.file_format(
    "Gemma3Text",
    KEYS,
    layer=gemma2.LAYER,
    read=read,
    write=write,
    fixed={**gemma.CAUSAL, "attn_logit_softcapping": None},
    model_type="gemma3_text",
    variants={("use_bidirectional_attention", True): "embeddinggemma"},
    task_heads={"SequenceClassification": {"output": "score"}},
)


LARGEST, LARGEST_SCALAR = 62, 168  # layers and query_pre_attn_scalar of 27B, which a GGUF file does not state


def read_gguf(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    """Complete the fields of a GGUF file."""
    llama.read_gguf(fields, document)
    if fields["rope_type"] not in ("default", "linear"):
        raise InputError(f"rope.scaling.type is {fields['rope_type']!r}; Gemma 3 has linear scaling or none")
    fields.setdefault("rope_theta", 1000000.0)
    head = fields.get("head_dim", 256)
    fields["query_pre_attn_scalar"] = LARGEST_SCALAR if fields["num_hidden_layers"] == LARGEST else head


def subtract_one(name: str, tensor: Tensor) -> Tensor:
    """Undo what llama.cpp adds to the weights of norms."""
    return tensor - 1 if name.endswith("norm.weight") else tensor


GGUF_NAMES = {
    **llama.GGUF_NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GGUF = llama.gguf_format("gemma3", gemma2.LAYER, modules=GGUF_NAMES, convert=subtract_one, read=read_gguf)
