"""The files of a GPT: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.checkpoints.file_format import FileFormat, keys_of
from regard.checkpoints.formats import gpt2
from regard.models.openai_gpt import OpenAIGptConfig

NAMES = replace(
    gpt2.NAMES,
    base={"embedding.tokens.weight": "tokens_embed.weight", "embedding.positions.weight": "positions_embed.weight"},
    copies={"lm_head.weight": "{base}tokens_embed.weight"},
    buffers=r"(position_ids|h\.\d+\.attn\.bias)",
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    gpt2.read(fields, document)
    if fields.get("hidden_act") == "gelu":  # in this family's files, the approximation by tanh
        fields["hidden_act"] = "gelu_new"


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    gpt2.write(document, fields)
    document["afn"] = {"gelu_new": "gelu"}.get(document["afn"], document["afn"])


FORMAT = FileFormat(
    keys_of(OpenAIGptConfig, without=("intermediate_size",), **{**gpt2.RENAMED, "hidden_act": "afn"}),
    NAMES,
    {"tie_word_embeddings": True},
    read=read,
    write=write,
    class_prefix="OpenAIGPT",
    classes=gpt2.FORMAT.classes,
    task_heads={"SequenceClassification": {"output": "score"}},
)
