"""Llama: a causal decoder with rotary positions, grouped queries, RMS norms and gated layers.

Mistral, Qwen2, Qwen3 and Phi-3 differ from it in a few fields; each has a module with its own declaration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.models.family import Checkpoint, Family, FileFormat, Table, TensorNames, qkv, same_tensor
from regard.nn.block import Block, LayerConfig
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.embedding import TextEmbedding
from regard.nn.rotary import RopeScaling, Rotary
from regard.nn.stack import Stack
from regard.nn.training import normal_init, scaled_init


@dataclass(frozen=True)
class LlamaConfig:
    """Llama 2 7B by default. The fields `rope_...` describe the rotary positions, as `rope_scaling` does in a file.

    The layers after the first `max_window_layers` attend to the last `sliding_window` tokens, including their own.
    """

    family: str = "llama"
    vocab_size: int = 32000
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None  # None: as many as num_attention_heads
    head_dim: int | None = None  # None: hidden_size / num_attention_heads
    intermediate_size: int = 11008
    max_position_embeddings: int = 2048
    hidden_act: str = "silu"
    layer_norm_eps: float = 1e-6
    attention_dropout: float = 0.0
    attention_bias: bool = False  # of all linear layers of the attention
    qkv_bias: bool = False  # of queries, keys and values only
    mlp_bias: bool = False
    query_key_norm: bool = False
    sliding_window: int | None = None
    max_window_layers: int | None = None  # None: every layer has the window
    tie_word_embeddings: bool = False
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 1.0  # the share of each head that is rotated
    rope_type: Literal["default", "linear", "llama3", "yarn"] = "default"
    rope_factor: float = 1.0
    rope_original_positions: int | None = None  # None: max_position_embeddings
    rope_low_freq_factor: float = 1.0
    rope_high_freq_factor: float = 4.0
    rope_beta_fast: float = 32.0
    rope_beta_slow: float = 1.0
    rope_attention_factor: float | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    other_eos_token_id: tuple[int, ...] = ()  # more tokens that end a text, as in Llama 3

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    def rotary(self) -> Rotary:
        """Return the module that encodes positions in all layers."""
        scaling = None
        if self.rope_type != "default":
            scaling = RopeScaling(
                self.rope_type,
                self.rope_factor,
                original=self.rope_original_positions or self.max_position_embeddings,
                low=self.rope_low_freq_factor,
                high=self.rope_high_freq_factor,
                beta_fast=self.rope_beta_fast,
                beta_slow=self.rope_beta_slow,
                attention_factor=self.rope_attention_factor,
            )
        return Rotary(int(self.head_width * self.partial_rotary_factor), theta=self.rope_theta, scaling=scaling)

    def layer(self, number: int) -> LayerConfig:
        """Return the settings of a layer, counted from 0."""
        window = self.sliding_window if number >= (self.max_window_layers or 0) else None
        return LayerConfig(
            width=self.hidden_size,
            heads=self.num_attention_heads,
            key_value_heads=self.num_key_value_heads,
            head_width=self.head_width,
            ffn=self.intermediate_size,
            norm_first=True,
            norm="rms",
            eps=self.layer_norm_eps,
            activation=self.hidden_act,
            gated=True,
            bias=self.mlp_bias,
            qkv_bias=self.attention_bias or self.qkv_bias,
            attention_output_bias=self.attention_bias,
            query_key_norm=self.query_key_norm,
            causal=True,
            window=None if window is None else window - 1,
            attention_dropout=self.attention_dropout,
        )


class Llama(CausalDecoder):
    """A pre-norm decoder; the head "output" is its output layer unless that is tied to the embedding."""

    def __init__(self, config: LlamaConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__()
        self.config = config
        if config.hidden_size % config.num_attention_heads and config.head_dim is None:
            raise InputError(f"{config.num_attention_heads} heads do not divide a width of {config.hidden_size}")
        rotary, layers = config.rotary(), [config.layer(number) for number in range(config.num_hidden_layers)]
        self.embedding = TextEmbedding(config.vocab_size, config.hidden_size)
        self.decoder = Stack((Block(layer, positions=rotary) for layer in layers), norm=layers[0].new_norm())
        untied = not config.tie_word_embeddings and (output_heads is None or "output" in output_heads)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False) if untied else None
        normal_init(self)
        scaled_init(self.decoder.layers)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V, W) of the output layer."""
        if self.output is not None:
            return self.output.weight
        if self.config.tie_word_embeddings:
            return self.embedding.tokens.weight
        raise InputError("this checkpoint has no output layer (lm_head.weight), so it cannot predict tokens")


def layer_names(config: LlamaConfig) -> dict[str, str | tuple[str, ...]]:
    """The names inside one layer."""
    biases = config.attention_bias or config.qkv_bias
    projection = "attention.project.{p}" if biases else "attention.project.weight"
    mlp = ".{p}" if config.mlp_bias else ".weight"
    table: dict[str, str | tuple[str, ...]] = {
        projection: qkv("self_attn.", ("q_proj", "k_proj", "v_proj"), ".{p}" if biases else ".weight"),
        "attention_residual.norm.weight": "input_layernorm.weight",
        f"ffn.inner{mlp}": (f"mlp.gate_proj{mlp}", f"mlp.up_proj{mlp}"),
        f"ffn.outer{mlp}": f"mlp.down_proj{mlp}",
        "ffn_residual.norm.weight": "post_attention_layernorm.weight",
    }
    output = ".{p}" if config.attention_bias else ".weight"
    table[f"attention.output{output}"] = f"self_attn.o_proj{output}"
    if config.query_key_norm:
        table["attention.query_norm.weight"] = "self_attn.q_norm.weight"
        table["attention.key_norm.weight"] = "self_attn.k_norm.weight"
    return table


def tensor_names(config: LlamaConfig, layer: Table | None = None) -> TensorNames:
    tied, width = config.tie_word_embeddings, config.head_width
    keys = width * (config.num_key_value_heads or config.num_attention_heads)
    return TensorNames(
        "model.",
        {"embedding.tokens.weight": "embed_tokens.weight", "decoder.norm.weight": "norm.weight"},
        {("decoder.layers", "layers"): layer_names(config) if layer is None else layer},
        {"output": {} if tied else {"output.weight": "lm_head.weight"}},
        copies={"lm_head.weight": "{base}embed_tokens.weight"} if tied else {},
        buffers=r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
        qkv_sizes=(width * config.num_attention_heads, keys, keys),
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
    if fields["tie_word_embeddings"]:
        document["architectures"] = [name.removesuffix("Model") + "ForCausalLM" for name in document["architectures"]]


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


def file_format(class_prefix: str, keys: Mapping[str, str], **options: Any) -> FileFormat:
    """Return the file format of a family like Llama."""
    return FileFormat(
        keys,
        lambda output_heads: f"{class_prefix}ForCausalLM" if output_heads else f"{class_prefix}Model",
        **{"tensor_names": tensor_names, "read": read, "write": write, **options},
        class_prefix=class_prefix,
        task_heads={"SequenceClassification": {"output": "score"}, "TokenClassification": {"output": "score"}},
    )


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


def gguf_format(architecture: str, names: Callable[[Any], TensorNames] = tensor_names) -> dict[str, FileFormat]:
    """Return how GGUF files of llama.cpp store a family like Llama, whose tensors transformers calls by `names`."""

    def rename(name: str) -> str:
        module, _, parameter = name.rpartition(".")
        return f"{GGUF_NAMES[module]}.{parameter}"

    def gguf_names(config: LlamaConfig) -> TensorNames:
        theirs = names(config)
        (layer,) = theirs.layers.values()
        return TensorNames(
            base={"embedding.tokens.weight": "token_embd.weight", "decoder.norm.weight": "output_norm.weight"},
            layers={
                ("decoder.layers", "blk"): {
                    ours: rename(name) if isinstance(name, str) else tuple(map(rename, name))
                    for ours, name in layer.items()
                }
            },
            output_heads={"output": {} if config.tie_word_embeddings else {"output.weight": "output.weight"}},
            buffers=re.escape(ROPE_FREQUENCIES),
            qkv_sizes=theirs.qkv_sizes,
            convert=partial(separate_halves, config.head_width) if architecture == "llama" else same_tensor,
        )

    return {architecture: FileFormat(GGUF_KEYS, lambda output_heads: architecture, gguf_names, read=read_gguf)}


def separate_halves(width: int, name: str, tensor: Tensor) -> Tensor:
    """Undo llama.cpp's order of queries and keys: it stores values k and k + width/2 of a head, a pair, in turn."""
    if not re.fullmatch(r"blk\.\d+\.attn_[qk]\.(weight|bias)", name) or len(tensor) % width:
        return tensor
    return tensor.view(-1, width // 2, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def size(width: int, layers: int, heads: int, inner: int, **more: object) -> dict[str, object]:
    """Return the config fields of a checkpoint's size."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return {**dict(zip(names, (width, layers, heads, inner), strict=True)), **more}


LLAMA3 = {
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_type": "llama3",
    "rope_original_positions": 8192,
    "layer_norm_eps": 1e-5,
    "num_key_value_heads": 8,
}
SMOL = {"vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000.0, "tie_word_embeddings": True}

FAMILY = Family(
    name="llama",
    title="a Llama",
    year=2023,
    description="decoder with rotary positions and grouped queries; also SmolLM2 and TinyLlama",
    model_class=Llama,
    config_class=LlamaConfig,
    capabilities=frozenset({"causal-lm", "text-generation", "fine-tuning"}),
    stacks=("decoder",),
    output_heads=("output",),
    checkpoints=(
        Checkpoint(
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            134_515_008,
            {**SMOL, **size(576, 30, 9, 1536, num_key_value_heads=3)},
            (),
        ),
        Checkpoint(
            "HuggingFaceTB/SmolLM2-360M-Instruct",
            361_821_120,
            {**SMOL, **size(960, 32, 15, 2560, num_key_value_heads=5)},
            (),
        ),
        Checkpoint("HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384, {**SMOL, **size(2048, 24, 32, 8192)}, ()),
        Checkpoint(
            "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
            1_100_048_384,
            size(2048, 22, 32, 5632, num_key_value_heads=4, layer_norm_eps=1e-5),
            ("output",),
        ),
        Checkpoint("meta-llama/Llama-2-7b-hf", 6_738_415_616, {"max_position_embeddings": 4096}, ("output",)),
        Checkpoint(
            "meta-llama/Llama-3.1-8B-Instruct",
            8_030_261_248,
            {**LLAMA3, "rope_factor": 8.0, **size(4096, 32, 32, 14336)},
            ("output",),
        ),
        Checkpoint(
            "meta-llama/Llama-3.2-1B-Instruct",
            1_235_814_400,
            {**LLAMA3, "rope_factor": 32.0, "tie_word_embeddings": True, **size(2048, 16, 32, 8192, head_dim=64)},
            (),
        ),
    ),
    file_format=file_format(
        "Llama",
        {**KEYS, "attention_bias": "attention_bias", "mlp_bias": "mlp_bias"},
        fixed={"pretraining_tp": 1},
    ),
    gguf=gguf_format("llama"),
)
