"""The files of a BERT: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, keys_of, qkv
from regard.models.bert import BertConfig

RENAMED = {"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"}
KEYS = keys_of(BertConfig, without=("embedding_size", "position_offset"), **RENAMED)
FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
BASE: Table = {
    "embedding.tokens.weight": "embeddings.word_embeddings.weight",
    "embedding.positions.weight": "embeddings.position_embeddings.weight",
    "embedding.norm.{p}": "embeddings.LayerNorm.{p}",
}
SEGMENTS: Table = {"embedding.segments.weight": "embeddings.token_type_embeddings.weight"}
LAYER: Table = {
    "attention.project.{p}": qkv("attention.self.", ("query", "key", "value")),
    "attention.output.{p}": "attention.output.dense.{p}",
    "attention_residual.norm.{p}": "attention.output.LayerNorm.{p}",
    "ffn.inner.{p}": "intermediate.dense.{p}",
    "ffn.outer.{p}": "output.dense.{p}",
    "ffn_residual.norm.{p}": "output.LayerNorm.{p}",
}
POOLER: Table = {"pooler.linear.{p}": "{base}pooler.dense.{p}"}


def mlm_head(dense: str, norm: str, bias: str) -> Table:
    """Return the names of a head for masked tokens."""
    return {"mlm_head.linear.{p}": f"{dense}.{{p}}", "mlm_head.norm.{p}": f"{norm}.{{p}}", "mlm_head.bias": bias}


TOKENS = "{base}embeddings.word_embeddings.weight"
NAMES = TensorNames(
    "bert.",
    {**BASE, **SEGMENTS},
    {("encoder.layers", "encoder.layer"): LAYER},
    {
        "pooler": POOLER,
        "mlm_head": mlm_head(
            "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
        ),
        "nsp_head": {"nsp_head.{p}": "cls.seq_relationship.{p}"},
    },
    copies={"cls.predictions.decoder.weight": TOKENS, "cls.predictions.decoder.bias": "cls.predictions.bias"},
    buffers=r"embeddings\.position_ids",
)


POOLED = {"pool.0": "bert.pooler.dense", "output": "classifier"}
FORMAT = FileFormat(
    KEYS,
    NAMES,
    FIXED,
    variants={("position_embedding_type", "alibi"): "jina-bert"},
    class_prefix="Bert",
    task_heads={"SequenceClassification": POOLED, "MultipleChoice": POOLED},
)
