"""The files of a GPT-J: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, TensorNames, qkv

NAMES = TensorNames(
    "transformer.",
    {"embedding.tokens.weight": "wte.weight", "decoder.norm.{p}": "ln_f.{p}"},
    {
        ("decoder.layers", "h"): {
            "norm.{p}": "ln_1.{p}",
            "attention.project.weight": qkv("attn.", ("q_proj", "k_proj", "v_proj"), ".weight"),
            "attention.output.weight": "attn.out_proj.weight",
            "ffn.inner.{p}": "mlp.fc_in.{p}",
            "ffn.outer.{p}": "mlp.fc_out.{p}",
        }
    },
    {"output": {"output.{p}": "lm_head.{p}"}},
    buffers=r"(transformer\.)?h\.\d+\.attn\.((masked_)?bias|embed_positions)",
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    width = fields.get("hidden_size")
    fields.setdefault("intermediate_size", 4 * width if isinstance(width, int) else 0)


FORMAT = FileFormat(
    {
        "vocab_size": "vocab_size",
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
        "rotary_dim": "rotary_dim",
        "hidden_act": "activation_function",
        "layer_norm_eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
        "embedding_dropout": "embd_pdrop",
        "attention_dropout": "attn_pdrop",
        "bos_token_id": "bos_token_id",
        "eos_token_id": "eos_token_id",
    },
    lambda output_heads: "GPTJForCausalLM",
    lambda config: NAMES,
    {"tie_word_embeddings": False},
    optional=("intermediate_size",),
    read=read,
    class_prefix="GPTJ",
    task_heads={"SequenceClassification": {"output": "score"}},
)
