"""The files of a BERT: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection

from regard.checkpoints.file_format import FileFormat, Table, TensorNames, qkv

KEYS = {
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
}

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
TOKENS = "{base}embeddings.word_embeddings.weight"
NAMES = TensorNames(
    "bert.",
    {**BASE, **SEGMENTS},
    {("encoder.layers", "encoder.layer"): LAYER},
    {
        "pooler": POOLER,
        "mlm_head": {
            "mlm_head.linear.{p}": "cls.predictions.transform.dense.{p}",
            "mlm_head.norm.{p}": "cls.predictions.transform.LayerNorm.{p}",
            "mlm_head.bias": "cls.predictions.bias",
        },
        "nsp_head": {"nsp_head.{p}": "cls.seq_relationship.{p}"},
    },
    copies={"cls.predictions.decoder.weight": TOKENS, "cls.predictions.decoder.bias": "cls.predictions.bias"},
    buffers=r"(bert\.)?embeddings\.position_ids",
)


def architectures(prefix: str) -> Callable[[Collection[str]], str]:
    """Return a function from heads to the class name in transformers."""

    def architecture(output_heads: Collection[str]) -> str:
        if "nsp_head" in output_heads:
            return prefix + ("ForPreTraining" if "mlm_head" in output_heads else "ForNextSentencePrediction")
        return prefix + ("ForMaskedLM" if "mlm_head" in output_heads else "Model")

    return architecture


POOLED = {"pool.0": "bert.pooler.dense", "output": "classifier"}
FORMAT = FileFormat(
    KEYS,
    architectures("Bert"),
    lambda config: NAMES,
    FIXED,
    class_prefix="Bert",
    task_heads={"SequenceClassification": POOLED, "MultipleChoice": POOLED},
)
