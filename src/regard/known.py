"""The names of models: families, what is built in, and the hub's checkpoints that people reach for, with their sizes.

Plain data, so that listing it needs no torch. A test builds every model from its shape and counts its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "CHECKPOINTS",
    "DEFAULT_CAUSAL_LM",
    "DEFAULT_MODEL",
    "FAMILY_NOTES",
    "SHORT_NAMES",
    "Checkpoint",
    "builtin_folder",
    "builtin_names",
    "is_builtin",
    "one_of",
]

DEFAULT_MODEL = "regard-bert"  # the model of every verb that is given none
DEFAULT_CAUSAL_LM = "regard-gpt"  # of those that need one which predicts the next word
FAMILY_NOTES = {
    "seq2seq": "LSTM or GRU encoder-decoder; attention none, dot, general or additive; recipe luong or deck",
    "elmo": "two LSTM language models, forwards and backwards, over pieces of words or characters; layers are mixed",
    "transformer": "the encoder-decoder of 2017, sinusoidal positions",
    "bert": "encoder that reads both ways; heads: pooler, masked words, next sentence",
    "distilbert": "BERT with half the layers and no segments; head: masked words",
    "roberta": "BERT trained longer, byte-level BPE; heads: pooler, masked words",
    "gpt2": "decoder that predicts the next token",
    "t5": "text-to-text encoder-decoder with relative positions; also v1.1 and Flan",
    "vit": "images as sentences of patches; head: classifier",
}

_ONE = {
    "seq2seq": "a Seq2Seq",
    "elmo": "an ELMo",
    "transformer": "a Transformer",
    "bert": "a BERT",
    "distilbert": "a DistilBERT",
    "roberta": "a RoBERTa",
    "gpt": "a GPT",
    "gpt2": "a GPT-2",
    "t5": "a T5",
    "vit": "a ViT",
}


def one_of(family: str) -> str:
    """How a sentence calls one of a family: "a BERT", "an ELMo"."""
    return _ONE.get(family, f"a {family}")


@dataclass(frozen=True)
class Checkpoint:
    """A hub name, its family, where its shape differs from the family's base model, and its parameters in all."""

    name: str
    family: str
    parameters: int
    shape: Mapping[str, object] = field(default_factory=dict)
    heads: tuple[str, ...] | None = None  # None: the family's usual ones


_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_ROBERTA = {
    "vocab_size": 50265,
    "max_position_embeddings": 512,
    "position_offset": 2,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
_GATED = {"hidden_act": "gelu-tanh", "is_gated_act": True, "scale_decoder_outputs": False}

CHECKPOINTS = (
    Checkpoint("google-bert/bert-base-uncased", "bert", 110_106_428),
    Checkpoint("google-bert/bert-large-uncased", "bert", 336_226_108, _LARGE),
    Checkpoint("google-bert/bert-base-cased", "bert", 108_932_934, {"vocab_size": 28996}),
    Checkpoint("google-bert/bert-base-multilingual-cased", "bert", 178_566_653, {"vocab_size": 119547}),
    Checkpoint(
        "sentence-transformers/all-MiniLM-L6-v2",
        "bert",
        22_713_216,
        {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
        ("pooler",),
    ),
    Checkpoint(
        "distilbert/distilbert-base-uncased", "distilbert", 66_985_530, {"num_hidden_layers": 6, "type_vocab_size": 0}
    ),
    Checkpoint(
        "distilbert/distilbert-base-cased",
        "distilbert",
        65_812_036,
        {"vocab_size": 28996, "num_hidden_layers": 6, "type_vocab_size": 0},
    ),
    Checkpoint("FacebookAI/roberta-base", "roberta", 124_697_433, _ROBERTA, ("masked",)),
    Checkpoint("FacebookAI/roberta-large", "roberta", 355_412_057, {**_ROBERTA, **_LARGE}, ("masked",)),
    Checkpoint("openai-community/gpt2", "gpt2", 124_439_808),
    Checkpoint("openai-community/gpt2-medium", "gpt2", 354_823_168, _LARGE),
    Checkpoint(
        "openai-community/gpt2-large",
        "gpt2",
        774_030_080,
        {"hidden_size": 1280, "num_hidden_layers": 36, "num_attention_heads": 20, "intermediate_size": 5120},
    ),
    Checkpoint(
        "openai-community/gpt2-xl",
        "gpt2",
        1_557_611_200,
        {"hidden_size": 1600, "num_hidden_layers": 48, "num_attention_heads": 25, "intermediate_size": 6400},
    ),
    Checkpoint("distilbert/distilgpt2", "gpt2", 81_912_576, {"num_hidden_layers": 6}),
    Checkpoint("google-t5/t5-small", "t5", 60_506_624),
    Checkpoint(
        "google-t5/t5-base",
        "t5",
        222_903_552,
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_decoder_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
        },
    ),
    Checkpoint(
        "google/flan-t5-small",
        "t5",
        76_961_152,
        {
            **_GATED,
            "num_hidden_layers": 8,
            "num_decoder_layers": 8,
            "num_attention_heads": 6,
            "intermediate_size": 1024,
        },
        ("output",),
    ),
    Checkpoint(
        "google/flan-t5-base",
        "t5",
        247_577_856,
        {
            **_GATED,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_decoder_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 2048,
        },
        ("output",),
    ),
    Checkpoint("google/vit-base-patch16-224", "vit", 86_567_656),
    Checkpoint("google/vit-large-patch16-224", "vit", 304_326_632, _LARGE),
)

# The hub serves the first checkpoints of these owners without the owner too: "gpt2" is "openai-community/gpt2".
_FIRST_OWNERS = ("google-bert", "distilbert", "FacebookAI", "openai-community", "google-t5")
SHORT_NAMES = {
    known.name.partition("/")[2]: known for known in CHECKPOINTS if known.name.partition("/")[0] in _FIRST_OWNERS
}

_BUILT_IN = Path(__file__).parent / "builtin"


def builtin_names() -> list[str]:
    """The names of the models that came with Regard."""
    found = _BUILT_IN.iterdir() if _BUILT_IN.is_dir() else ()
    return sorted(entry.name for entry in found if (entry / "config.json").is_file())


def builtin_folder(name: str) -> Path:
    return _BUILT_IN / name


def is_builtin(path: Path) -> bool:
    """Whether a file came with Regard."""
    return path.resolve().is_relative_to(_BUILT_IN.resolve())
