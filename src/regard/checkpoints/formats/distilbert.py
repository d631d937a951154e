"""The files of a DistilBERT: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, TensorNames, qkv
from regard.checkpoints.formats import bert

NAMES = TensorNames(
    "distilbert.",
    bert.BASE,
    {
        ("encoder.layers", "transformer.layer"): {
            "attention.project.{p}": qkv("attention.", ("q_lin", "k_lin", "v_lin")),
            "attention.output.{p}": "attention.out_lin.{p}",
            "attention_residual.norm.{p}": "sa_layer_norm.{p}",
            "ffn.inner.{p}": "ffn.lin1.{p}",
            "ffn.outer.{p}": "ffn.lin2.{p}",
            "ffn_residual.norm.{p}": "output_layer_norm.{p}",
        }
    },
    {
        "mlm_head": {
            "mlm_head.linear.{p}": "vocab_transform.{p}",
            "mlm_head.norm.{p}": "vocab_layer_norm.{p}",
            "mlm_head.bias": "vocab_projector.bias",
        }
    },
    copies={"vocab_projector.weight": bert.TOKENS},
)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    fields["type_vocab_size"] = 0


POOLED = {"pool.0": "pre_classifier", "output": "classifier"}
FORMAT = FileFormat(
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
    },
    bert.architectures("DistilBert"),
    lambda config: NAMES,
    read=read,
    class_prefix="DistilBert",
    task_heads={"SequenceClassification": POOLED, "MultipleChoice": POOLED},
)
