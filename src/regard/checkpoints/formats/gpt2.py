"""The files of a GPT-2: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of
from regard.models.gpt2 import GptConfig

LAYER: Table = {
    "attention.project.{p}": "attn.c_attn.{p}",
    "attention.output.{p}": "attn.c_proj.{p}",
    "attention_residual.norm.{p}": "ln_1.{p}",
    "ffn.inner.{p}": "mlp.c_fc.{p}",
    "ffn.outer.{p}": "mlp.c_proj.{p}",
    "ffn_residual.norm.{p}": "ln_2.{p}",
}
NAMES = TensorNames(
    "transformer.",
    {
        "embedding.tokens.weight": "wte.weight",
        "embedding.positions.weight": "wpe.weight",
        "decoder.norm.{p}": "ln_f.{p}",
    },
    {("decoder.layers", "h"): LAYER},
    copies={"lm_head.weight": "{base}wte.weight"},
    buffers=r"h\.\d+\.attn\.(masked_)?bias",
    transposed=r"decoder\.layers\.\d+\.(attention|ffn)\..*weight",
)

GGUF_NAMES = TensorNames(
    base={
        "embedding.tokens.weight": "token_embd.weight",
        "embedding.positions.weight": "position_embd.weight",
        "decoder.norm.{p}": "output_norm.{p}",
    },
    layers={
        ("decoder.layers", "blk"): {
            "attention.project.{p}": "attn_qkv.{p}",
            "attention.output.{p}": "attn_output.{p}",
            "attention_residual.norm.{p}": "attn_norm.{p}",
            "ffn.inner.{p}": "ffn_up.{p}",
            "ffn.outer.{p}": "ffn_down.{p}",
            "ffn_residual.norm.{p}": "ffn_norm.{p}",
        }
    },
    copies={"output.weight": "token_embd.weight"},
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    width = fields.get("hidden_size")
    fields.setdefault("intermediate_size", 4 * width if isinstance(width, int) else 0)


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["embd_pdrop"] = fields["dropout"]


RENAMED = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
    "layer_norm_eps": "layer_norm_epsilon",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
}
FORMAT = FileFormat(
    keys_of(GptConfig, **RENAMED),
    NAMES,
    {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "tie_word_embeddings": True,
        "add_cross_attention": False,
    },
    optional=("intermediate_size",),
    read=read,
    write=write,
    class_prefix="GPT2",
    classes={(): "LMHeadModel"},
    task_heads={"SequenceClassification": {"output": "score"}},
)
GGUF = {
    "gpt2": FileFormat(
        {
            "vocab_size": "vocab_size",
            "hidden_size": "embedding_length",
            "num_hidden_layers": "block_count",
            "num_attention_heads": "attention.head_count",
            "intermediate_size": "feed_forward_length",
            "max_position_embeddings": "context_length",
            "layer_norm_eps": "attention.layer_norm_epsilon",
            "bos_token_id": "bos_token_id",
            "eos_token_id": "eos_token_id",
        },
        GGUF_NAMES,
    )
}
