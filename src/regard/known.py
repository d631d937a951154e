"""The names of models: families, what is built in, and the hub's checkpoints that people reach for, with their sizes.

Plain data, so that listing it needs no torch. A test builds every model from its shape and counts its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "CHECKPOINTS",
    "DEFAULT_MODEL",
    "FAMILY_NOTES",
    "SHORT_NAMES",
    "DEFAULT_CAUSAL_LM",
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


_LARGE = {"width": 1024, "depth": 24, "heads": 16, "ffn": 4096}
_ROBERTA = {"vocabulary": 50265, "positions": 512, "position_offset": 2, "segments": 1, "eps": 1e-5, "padding": 1}
_GATED = {"activation": "gelu-tanh", "gated": True, "scaled": False}

CHECKPOINTS = (
    Checkpoint("google-bert/bert-base-uncased", "bert", 110_106_428),
    Checkpoint("google-bert/bert-large-uncased", "bert", 336_226_108, _LARGE),
    Checkpoint("google-bert/bert-base-cased", "bert", 108_932_934, {"vocabulary": 28996}),
    Checkpoint("google-bert/bert-base-multilingual-cased", "bert", 178_566_653, {"vocabulary": 119547}),
    Checkpoint(
        "sentence-transformers/all-MiniLM-L6-v2",
        "bert",
        22_713_216,
        {"width": 384, "depth": 6, "ffn": 1536},
        ("pooler",),
    ),
    Checkpoint("distilbert/distilbert-base-uncased", "distilbert", 66_985_530, {"depth": 6, "segments": 0}),
    Checkpoint(
        "distilbert/distilbert-base-cased", "distilbert", 65_812_036, {"vocabulary": 28996, "depth": 6, "segments": 0}
    ),
    Checkpoint("FacebookAI/roberta-base", "roberta", 124_697_433, _ROBERTA, ("masked",)),
    Checkpoint("FacebookAI/roberta-large", "roberta", 355_412_057, {**_ROBERTA, **_LARGE}, ("masked",)),
    Checkpoint("openai-community/gpt2", "gpt2", 124_439_808),
    Checkpoint("openai-community/gpt2-medium", "gpt2", 354_823_168, _LARGE),
    Checkpoint(
        "openai-community/gpt2-large", "gpt2", 774_030_080, {"width": 1280, "depth": 36, "heads": 20, "ffn": 5120}
    ),
    Checkpoint(
        "openai-community/gpt2-xl", "gpt2", 1_557_611_200, {"width": 1600, "depth": 48, "heads": 25, "ffn": 6400}
    ),
    Checkpoint("distilbert/distilgpt2", "gpt2", 81_912_576, {"depth": 6}),
    Checkpoint("google-t5/t5-small", "t5", 60_506_624),
    Checkpoint(
        "google-t5/t5-base",
        "t5",
        222_903_552,
        {"width": 768, "depth": 12, "decoder_depth": 12, "heads": 12, "ffn": 3072},
    ),
    Checkpoint(
        "google/flan-t5-small",
        "t5",
        76_961_152,
        {**_GATED, "depth": 8, "decoder_depth": 8, "heads": 6, "ffn": 1024},
        ("output",),
    ),
    Checkpoint(
        "google/flan-t5-base",
        "t5",
        247_577_856,
        {**_GATED, "width": 768, "depth": 12, "decoder_depth": 12, "heads": 12, "ffn": 2048},
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
