"""BERT."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from regard.models.family import Checkpoint, Family, FileFormat, Table, TensorNames

LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
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


def qkv(before: str, names: tuple[str, str, str], after: str = ".{p}") -> tuple[str, ...]:
    """Return the names of the three projections that Regard stores as one matrix."""
    return tuple(f"{before}{name}{after}" for name in names)


def architectures(name: str) -> Callable[[Collection[str]], str]:
    """Return a function from heads to the class name in transformers."""

    def architecture(heads: Collection[str]) -> str:
        if "next" in heads:
            return name + ("ForPreTraining" if "masked" in heads else "ForNextSentencePrediction")
        return name + ("ForMaskedLM" if "masked" in heads else "Model")

    return architecture


LAYER: Table = {
    "attention.project.{p}": qkv("attention.self.", ("query", "key", "value")),
    "attention.output.{p}": "attention.output.dense.{p}",
    "attended.norm.{p}": "attention.output.LayerNorm.{p}",
    "ffn.inner.{p}": "intermediate.dense.{p}",
    "ffn.outer.{p}": "output.dense.{p}",
    "fed.norm.{p}": "output.LayerNorm.{p}",
}
BASE: Table = {
    "embedding.tokens.weight": "embeddings.word_embeddings.weight",
    "embedding.positions.weight": "embeddings.position_embeddings.weight",
    "embedding.norm.{p}": "embeddings.LayerNorm.{p}",
}
SEGMENTS: Table = {"embedding.segments.weight": "embeddings.token_type_embeddings.weight"}
POOLER: Table = {"pooler.linear.{p}": "{base}pooler.dense.{p}"}
TOKENS = "{base}embeddings.word_embeddings.weight"

NAMES = TensorNames(
    "bert.",
    {**BASE, **SEGMENTS},
    {("encoder.layers", "encoder.layer"): LAYER},
    {
        "pooler": POOLER,
        "masked": {
            "masked.linear.{p}": "cls.predictions.transform.dense.{p}",
            "masked.norm.{p}": "cls.predictions.transform.LayerNorm.{p}",
            "masked.bias": "cls.predictions.bias",
        },
        "next": {"next.{p}": "cls.seq_relationship.{p}"},
    },
    copies={"cls.predictions.decoder.weight": TOKENS, "cls.predictions.decoder.bias": "cls.predictions.bias"},
    buffers=r"(bert\.)?embeddings\.position_ids",
)


def tensor_names(config: Any) -> TensorNames:
    return NAMES


FAMILY = Family(
    name="bert",
    title="a BERT",
    year=2018,
    description="bidirectional encoder; heads: pooler, masked language model, next sentence",
    model="regard.models.bert:Bert",
    config="regard.models.bert:BertConfig",
    capabilities=frozenset({"text-encoder", "masked-lm", "next-sentence", "pooling", "segments", "fine-tuning"}),
    heads=("pooler", "masked", "next"),
    checkpoints=(
        Checkpoint("google-bert/bert-base-uncased", 110_106_428),
        Checkpoint("google-bert/bert-large-uncased", 336_226_108, LARGE),
        Checkpoint("google-bert/bert-base-cased", 108_932_934, {"vocab_size": 28996}),
        Checkpoint("google-bert/bert-base-multilingual-cased", 178_566_653, {"vocab_size": 119547}),
        Checkpoint(
            "sentence-transformers/all-MiniLM-L6-v2",
            22_713_216,
            {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
            ("pooler",),
        ),
    ),
    file_format=FileFormat(KEYS, architectures("Bert"), tensor_names, FIXED),
    pretraining="bert",
)
