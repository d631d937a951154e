"""The files of a EuroBERT: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.checkpoints.file_format import TensorNames
from regard.checkpoints.formats import llama
from regard.errors import InputError
from regard.models.llama import LlamaConfig


def tensor_names(config: LlamaConfig) -> TensorNames:
    names = llama.tensor_names(llama.LAYER, config, stack="encoder")
    return replace(names, output_heads={"mlm_head": {"mlm_head.weight": "lm_head.weight"}})


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    llama.read(fields, document)
    classes = str(document.get("architectures"))
    if "SequenceClassification" in classes and document.get("classifier_pooling") is None:
        raise InputError("classifier_pooling is missing; transformers then averages logits, which is not supported")


KEYS = {name: key for name, key in llama.KEYS.items() if name != "tie_word_embeddings"}
FORMAT = replace(
    llama.file_format(
        "EuroBert",
        {**KEYS, "attention_bias": "attention_bias", "mask_token_id": "mask_token_id"},
        fixed={"pretraining_tp": 1, "tie_word_embeddings": False, "mlp_bias": False, "hidden_dropout": 0.0},
        code=r"(EuroBERT/[\w.-]+--)?(configuration|modeling)_eurobert\.EuroBert\w+",
        code_keys=(
            *("rope_theta", "rope_scaling", "rope_parameters", "classifier_pooling", "clf_pooling"),
            *("bos_token", "eos_token", "pad_token", "mask_token"),
        ),
        task_heads={"SequenceClassification": {"pool.0": "dense", "output": "classifier"}},
        written={"classifier_pooling": "bos"},
        head_values={"classifier_pooling": ("bos", "mean")},
        pooling_key="classifier_pooling",
        read=read,
    ),
    tensor_names=tensor_names,
)
