"""The files of a Llama: keys of config.json and names of tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, qkv, same_tensor
from regard.errors import InputError, check_choice
from regard.models.llama import LlamaConfig
from regard.nn.rotary import RopeScaling, Rotary

LAYER: Table = {
    "attention.project.{p}": qkv("self_attn.", ("q_proj", "k_proj", "v_proj")),
    "attention.query_norm.weight": "self_attn.q_norm.weight",
    "attention.key_norm.weight": "self_attn.k_norm.weight",
    "attention.output.{p}": "self_attn.o_proj.{p}",
    "attention_residual.norm.weight": "input_layernorm.weight",
    "ffn.inner.{p}": ("mlp.gate_proj.{p}", "mlp.up_proj.{p}"),
    "ffn.outer.{p}": "mlp.down_proj.{p}",
    "ffn_residual.norm.weight": "post_attention_layernorm.weight",
}


# Some families call the base model otherwise in this class.
ANSWERING = {"ForQuestionAnswering": "transformer."}


def tensor_names(
    layer: Table, config: LlamaConfig, *, stack: str = "decoder", class_prefixes: Mapping[str, str] | None = None
) -> TensorNames:
    """Return the names of a model whose layers, in `stack`, have those in `layer`."""
    width = config.head_width
    keys = width * (config.num_key_value_heads or config.num_attention_heads)
    return TensorNames(
        "model.",
        base={"embedding.tokens.weight": "embed_tokens.weight", f"{stack}.norm.weight": "norm.weight"},
        layers={(f"{stack}.layers", "layers"): layer},
        output_heads={"output": {"output.weight": "lm_head.weight"}},
        copies={"lm_head.weight": "{base}embed_tokens.weight"} if config.tie_word_embeddings else {},
        buffers=r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
        qkv_sizes=(width * config.num_attention_heads, keys, keys),
        class_prefixes=class_prefixes or {},
    )


ROPE_KEYS = {  # our field: the key in rope_parameters
    "rope_factor": "factor",
    "rope_original_positions": "original_max_position_embeddings",
    "rope_low_freq_factor": "low_freq_factor",
    "rope_high_freq_factor": "high_freq_factor",
    "rope_beta_fast": "beta_fast",
    "rope_beta_slow": "beta_slow",
    "rope_attention_factor": "attention_factor",
}
ROPE_FIELDS = {
    "default": (),
    "linear": ("rope_factor",),
    "llama3": ("rope_factor", "rope_original_positions", "rope_low_freq_factor", "rope_high_freq_factor"),
    "yarn": (
        *("rope_factor", "rope_original_positions", "rope_beta_fast", "rope_beta_slow"),
        "rope_attention_factor",
    ),
}


def read_rope(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    """Read rotary positions: `rope_parameters`, or `rope_theta` and `rope_scaling` as in files of transformers 4."""
    rope = document.get("rope_parameters") or document.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise InputError(f"rope_parameters should be an object, not {str(rope)[:60]!r}")
    kind = rope.get("rope_type", rope.get("type")) or "default"
    check_choice("rope_type", str(kind)[:60], ROPE_FIELDS)
    for name in ("rope_theta", "partial_rotary_factor"):
        value = rope.get(name, document.get(name))
        if value is not None:
            fields[name] = value
    fields["rope_type"] = kind
    known = {ROPE_KEYS[name]: name for name in ROPE_FIELDS[kind]}
    for key, value in rope.items():
        if key in known and value is not None:
            fields[known[key]] = value
        elif key not in ("rope_theta", "partial_rotary_factor", "rope_type", "type") and key not in known:
            expected = ", ".join(known) or "no other key"
            raise InputError(f"{str(key)[:60]!r} is not supported with rope_type {kind!r}; expected {expected}")


def write_rope(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Write rotary positions for transformers 5, and for version 4 with its keys."""
    names = ROPE_FIELDS[fields["rope_type"]]
    scaling = {ROPE_KEYS[name]: fields[name] for name in names if fields[name] is not None}
    shared: dict[str, Any] = {"rope_theta": fields["rope_theta"]}
    if fields["partial_rotary_factor"] != 1.0:
        shared["partial_rotary_factor"] = fields["partial_rotary_factor"]
    document["rope_parameters"] = {**shared, "rope_type": fields["rope_type"], **scaling}
    document |= shared
    if scaling:
        document["rope_scaling"] = {"rope_type": fields["rope_type"], **scaling}


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    read_rope(fields, document)
    ends = fields.get("eos_token_id")
    if isinstance(ends, list) and ends:
        fields["eos_token_id"], fields["other_eos_token_id"] = ends[0], ends[1:]


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    write_rope(document, fields)
    for key in ("head_dim", "num_key_value_heads"):  # transformers computes them if they are missing
        if document[key] is None:
            del document[key]
    if fields["other_eos_token_id"]:
        document["eos_token_id"] = [fields["eos_token_id"], *fields["other_eos_token_id"]]


KEYS = {
    **{
        name: name
        for name in (
            *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
            *("head_dim", "intermediate_size", "max_position_embeddings", "hidden_act", "attention_dropout"),
            *("tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id"),
        )
    },
    "layer_norm_eps": "rms_norm_eps",
}


TASK_HEADS = {"SequenceClassification": {"output": "score"}, "TokenClassification": {"output": "score"}}


def file_format(
    class_prefix: str,
    keys: Mapping[str, str],
    *,
    layer: Table = LAYER,
    names: Callable[[Any], TensorNames] | None = None,
    class_prefixes: Mapping[str, str] | None = None,
    **options: Any,
) -> FileFormat:
    """Return the file format of a family like Llama, with the names inside one layer, or the `names` of a config."""
    options = {"read": read, "write": write, "task_heads": TASK_HEADS, **options}
    names = names or partial(tensor_names, layer, class_prefixes=class_prefixes)
    return FileFormat(keys, names, class_prefix=class_prefix, **options)


GGUF_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "layer_norm_eps": "attention.layer_norm_rms_epsilon",
    "sliding_window": "attention.sliding_window",
    "rope_theta": "rope.freq_base",
    "rope_type": "rope.scaling.type",
    "rope_factor": "rope.scaling.factor",
    "rope_original_positions": "rope.scaling.original_context_length",
    **{name: name for name in ("tie_word_embeddings", "bos_token_id", "eos_token_id")},
}
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ROPE_FREQUENCIES = "rope_freqs.weight"  # what Llama 3 divides its frequencies by
LLAMA3_POSITIONS = 8192  # of the first training of Llama 3, which a GGUF file does not state


def read_gguf(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    """Complete the fields of a GGUF file."""
    kind, divisors = fields.pop("rope_type", "none"), document.get(ROPE_FREQUENCIES)
    check_choice("rope.scaling.type", str(kind)[:60], ("none", "linear", "yarn"))
    fields["rope_type"] = "default" if kind == "none" else kind
    theta = fields.get("rope_theta", LlamaConfig.rope_theta)
    if isinstance(divisors, list) and len(divisors) > 1 and isinstance(theta, float) and kind == "none" and theta > 1:
        fields |= {"rope_type": "llama3", "rope_factor": divisors[-1], "rope_original_positions": LLAMA3_POSITIONS}
        plain = Rotary(2 * len(divisors), theta=theta).frequencies
        scaled = RopeScaling("llama3", divisors[-1], original=LLAMA3_POSITIONS).scale(plain, theta)
        if not torch.allclose(plain / torch.tensor(divisors), scaled, rtol=1e-3, atol=0):
            raise InputError(
                f"{ROPE_FREQUENCIES} differs from Llama 3's scaling of rotary positions, the only known one"
            )
    width, heads = fields["hidden_size"], fields["num_attention_heads"]
    head = fields.get("head_dim") or (
        width // heads if isinstance(width, int) and isinstance(heads, int) and heads else 0
    )
    for key in ("rope.dimension_count", "attention.value_length"):
        if document.get(key, head) != head:
            raise InputError(
                f"{key} is {str(document[key])[:60]}, but a head has {head} values; only equal numbers work"
            )
    if document.get("eot_token_id") not in (None, fields.get("eos_token_id")):
        fields["other_eos_token_id"] = [document["eot_token_id"]]


def gguf_format(
    architecture: str,
    layer: Table = LAYER,
    *,
    modules: Mapping[str, str] = GGUF_NAMES,
    convert: Callable[[str, Tensor], Tensor] | None = None,
    read: Callable[[dict[str, Any], Mapping[str, object]], None] = read_gguf,
) -> dict[str, FileFormat]:
    """Return how GGUF files of llama.cpp store a family like Llama, with transformers' names inside one layer.

    `modules` maps them to those of llama.cpp, and `convert` undoes what it does to tensors.
    """

    def rename(name: str) -> str:
        module, _, parameter = name.rpartition(".")
        return f"{modules[module]}.{parameter}"

    def gguf_names(config: LlamaConfig) -> TensorNames:
        return TensorNames(
            base={"embedding.tokens.weight": "token_embd.weight", "decoder.norm.weight": "output_norm.weight"},
            layers={
                ("decoder.layers", "blk"): {
                    ours: rename(name) if isinstance(name, str) else tuple(map(rename, name))
                    for ours, name in layer.items()
                }
            },
            output_heads={"output": {"output.weight": "output.weight"}},
            buffers=re.escape(ROPE_FREQUENCIES),
            qkv_sizes=tensor_names(layer, config).qkv_sizes,
            convert=convert
            or (partial(separate_halves, config.head_width) if architecture == "llama" else same_tensor),
        )

    return {architecture: FileFormat(GGUF_KEYS, gguf_names, read=read)}


def separate_halves(width: int, name: str, tensor: Tensor) -> Tensor:
    """Undo llama.cpp's order of queries and keys: it stores values k and k + width/2 of a head, a pair, in turn."""
    if not re.fullmatch(r"blk\.\d+\.attn_[qk]\.(weight|bias)", name) or len(tensor) % width:
        return tensor
    return tensor.view(-1, width // 2, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


FORMAT = file_format(
    "Llama",
    {**KEYS, "attention_bias": "attention_bias", "mlp_bias": "mlp_bias"},
    fixed={"pretraining_tp": 1},
    class_prefixes=ANSWERING,
)
GGUF = gguf_format("llama")
