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
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "num_hidden_layers",
        "num_attention_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "max_position_embeddings": "max_position_embeddings",
        "type_vocab_size": "type_vocab_size",
        "hidden_act": "hidden_act",
        "layer_norm_eps": "layer_norm_eps",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "pad_token_id": "pad_token_id",
    },
    {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
)
FORMATS: dict[str, Format] = {
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "distilbert": Format(
        {
            "vocab_size": "vocab_size",
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "max_position_embeddings": "max_position_embeddings",
            "hidden_act": "activation",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "pad_token_id": "pad_token_id",
        }
    ),
    "gpt2": Format(
        {
            "vocab_size": "vocab_size",
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions",
            "hidden_act": "activation_function",
            "layer_norm_eps": "layer_norm_epsilon",
            "dropout": "resid_pdrop",
            "attention_dropout": "attn_pdrop",
            "bos_token_id": "bos_token_id",
            "eos_token_id": "eos_token_id",
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
            "vocab_size": "vocab_size",
            "hidden_size": "d_model",
            "head_dim": "d_kv",
            "num_hidden_layers": "num_layers",
            "num_decoder_layers": "num_decoder_layers",
            "num_attention_heads": "num_heads",
            "intermediate_size": "d_ff",
            "hidden_act": "feed_forward_proj",
            "relative_attention_num_buckets": "relative_attention_num_buckets",
            "relative_attention_max_distance": "relative_attention_max_distance",
            "layer_norm_eps": "layer_norm_epsilon",
            "dropout": "dropout_rate",
            "scale_decoder_outputs": "tie_word_embeddings",
            "pad_token_id": "pad_token_id",
            "eos_token_id": "eos_token_id",
            "decoder_start_token_id": "decoder_start_token_id",
        },
        {"is_decoder": False},
    ),
    "vit": Format(
        {
            "hidden_size": "hidden_size",
            "num_hidden_layers": "num_hidden_layers",
            "num_attention_heads": "num_attention_heads",
            "intermediate_size": "intermediate_size",
            "image_size": "image_size",
            "patch_size": "patch_size",
            "num_channels": "num_channels",
            "hidden_act": "hidden_act",
            "layer_norm_eps": "layer_norm_eps",
            "dropout": "hidden_dropout_prob",
            "attention_dropout": "attention_probs_dropout_prob",
        },
        {"qkv_bias": True},
    ),
}
