"""The keys of each family's config.json that Regard reads and writes, in our words.

A table and nothing else: what a value may be, and what becomes of it, is `configs`' business.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ACTIVATIONS", "FORMATS", "Format"]

ACTIVATIONS = {  # theirs in our words; what we write is the first that fits
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
}


@dataclass(frozen=True)
class Format:
    """One family's file: their key for each of our fields, and what other keys must be if they are there."""

    keys: dict[str, str]
    fixed: dict[str, object] = field(default_factory=dict)


_ENCODER = Format(
    {
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "depth": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn": "intermediate_size",
        "positions": "max_position_embeddings",
        "segments": "type_vocab_size",
        "activation": "hidden_act",
        "eps": "layer_norm_eps",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "padding": "pad_token_id",
    },
    {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
)
FORMATS: dict[str, Format] = {
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "distilbert": Format(
        {
            "vocabulary": "vocab_size",
            "width": "dim",
            "depth": "n_layers",
            "heads": "n_heads",
            "ffn": "hidden_dim",
            "positions": "max_position_embeddings",
            "activation": "activation",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "padding": "pad_token_id",
        }
    ),
    "gpt2": Format(
        {
            "vocabulary": "vocab_size",
            "width": "n_embd",
            "depth": "n_layer",
            "heads": "n_head",
            "ffn": "n_inner",
            "positions": "n_positions",
            "activation": "activation_function",
            "eps": "layer_norm_epsilon",
            "dropout": "resid_pdrop",
            "attention_dropout": "attn_pdrop",
            "begin": "bos_token_id",
            "end": "eos_token_id",
        },
        {
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "tie_word_embeddings": True,
            "add_cross_attention": False,
        },
    ),
    "t5": Format(
        {
            "vocabulary": "vocab_size",
            "width": "d_model",
            "head_width": "d_kv",
            "depth": "num_layers",
            "decoder_depth": "num_decoder_layers",
            "heads": "num_heads",
            "ffn": "d_ff",
            "activation": "feed_forward_proj",
            "buckets": "relative_attention_num_buckets",
            "reach": "relative_attention_max_distance",
            "eps": "layer_norm_epsilon",
            "dropout": "dropout_rate",
            "scaled": "tie_word_embeddings",
            "padding": "pad_token_id",
            "end": "eos_token_id",
            "begin": "decoder_start_token_id",
        },
        {"is_decoder": False},
    ),
    "vit": Format(
        {
            "width": "hidden_size",
            "depth": "num_hidden_layers",
            "heads": "num_attention_heads",
            "ffn": "intermediate_size",
            "image": "image_size",
            "patch": "patch_size",
            "channels": "num_channels",
            "activation": "hidden_act",
            "eps": "layer_norm_eps",
            "dropout": "hidden_dropout_prob",
            "attention_dropout": "attention_probs_dropout_prob",
        },
        {"qkv_bias": True},
    ),
}
