"""The files of a DistilBERT: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.file_format import FileFormat, TensorNames, keys_of, qkv
from regard.checkpoints.formats import bert
from regard.models.bert import BertConfig

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
    {"mlm_head": bert.mlm_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")},
    copies={"vocab_projector.weight": bert.TOKENS},
)
POOLED = {"pool.0": "pre_classifier", "output": "classifier"}
FORMAT = FileFormat(
    keys_of(
        BertConfig,
        without=("embedding_size", "position_offset", "type_vocab_size", "layer_norm_eps"),
        hidden_size="dim",
        num_hidden_layers="n_layers",
        num_attention_heads="n_heads",
        intermediate_size="hidden_dim",
        hidden_act="activation",
    ),
    NAMES,
    defaults={"type_vocab_size": 0},
    class_prefix="DistilBert",
    task_heads={"SequenceClassification": POOLED, "MultipleChoice": POOLED},
)
