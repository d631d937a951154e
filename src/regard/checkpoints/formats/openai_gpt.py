"""The files of a GPT: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, TensorNames
from regard.checkpoints.formats.gpt2 import NAMES as GPT2

NAMES = TensorNames(
    GPT2.prefix,
    {"embedding.tokens.weight": "tokens_embed.weight", "embedding.positions.weight": "positions_embed.weight"},
    GPT2.layers,
    copies={"lm_head.weight": "{base}tokens_embed.weight"},
    buffers=r"(transformer\.)?(position_ids|h\.\d+\.attn\.bias)",
    transposed=GPT2.transposed,
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    width = fields.get("hidden_size")
    fields["intermediate_size"] = 4 * width if isinstance(width, int) else 0
    if fields.get("hidden_act") == "gelu":  # in this family's files, the approximation by tanh
        fields["hidden_act"] = "gelu_new"


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["embd_pdrop"] = fields["dropout"]
    document["afn"] = {"gelu_new": "gelu"}.get(document["afn"], document["afn"])


FORMAT = FileFormat(
    {
        "vocab_size": "vocab_size",
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "hidden_act": "afn",
        "layer_norm_eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
        "bos_token_id": "bos_token_id",
        "eos_token_id": "eos_token_id",
    },
    lambda output_heads: "OpenAIGPTLMHeadModel",
    lambda config: NAMES,
    {"tie_word_embeddings": True},
    read=read,
    write=write,
    class_prefix="OpenAIGPT",
    task_heads={"SequenceClassification": {"output": "score"}},
)
