"""What a model family is: its capabilities, its checkpoints and its file format. Importing this does not import torch.

Each module in `regard.models.families` declares one family as `FAMILY`. The rest of the code asks what a model can do,
`can(model, "masked-lm")`, and never which class it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, TypeGuard, get_args

from regard.errors import check_choice

__all__ = [
    "Capability",
    "Checkpoint",
    "Family",
    "FileFormat",
    "TensorNames",
    "build",
    "can",
    "describe_family",
    "describe_model",
    "families",
    "family_name",
    "family_of",
    "get_family",
    "known_checkpoints",
]

Capability = Literal[
    "text-encoder",  # a Transformer that reads text in both directions
    "masked-lm",  # predicts masked tokens
    "next-sentence",  # predicts whether two sentences follow each other
    "causal-lm",  # reads from left to right and predicts the next token
    "encoder-decoder",  # reads a source and writes a target
    "text-generation",  # writes text after a prompt
    "translation",  # is trained from pairs of sentences, with one vocabulary for each language
    "image",  # reads pixels
    "fine-tuning",  # takes a task head
    "pooling",  # has a pooler
    "segments",  # marks the sentences of a pair
    "layer-mix",  # a task weighs all layers
    "recurrent",  # has no Transformer layers
]
Table = Mapping[str, str | tuple[str, ...]]
NOTHING = "(?!)"  # a pattern that matches no name


@dataclass(frozen=True)
class Checkpoint:
    """A hub name, its size, and the config fields in which it differs from the family's base model."""

    name: str
    parameters: int
    shape: Mapping[str, object] = field(default_factory=dict)
    heads: tuple[str, ...] | None = None  # None: the family's usual heads
    family: str = ""  # set by the family


@dataclass(frozen=True)
class TensorNames:
    """Regard's parameter names and their names in transformers' files.

    `prefix` precedes the names of the base model and may be missing in a file. `layers` maps the place of each stack
    (ours, theirs) to the names inside one layer. `heads` are optional. `copies` names tensors that a file may store
    twice, and their originals; `buffers` matches names that are not weights; `transposed` matches our names of matrices
    that the file stores transposed. `{p}` stands for weight or bias, `{base}` for the prefix.
    """

    prefix: str = ""
    base: Table = field(default_factory=dict)
    layers: Mapping[tuple[str, str], Table] = field(default_factory=dict)
    heads: Mapping[str, Table] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    buffers: str = NOTHING
    transposed: str = NOTHING


def _unchanged(*_: Any) -> None:
    """Leave the fields as they are."""


@dataclass(frozen=True)
class FileFormat:
    """How transformers writes a family: config.json keys by our field names, values it requires, and tensor names.

    `read(fields, document)` completes the fields that were read; `write(document, fields)` completes a new config.json.
    """

    keys: Mapping[str, str]
    architecture: Callable[[Collection[str]], str]  # heads -> transformers' class name
    tensor_names: Callable[[Any], TensorNames]  # config -> names
    fixed: Mapping[str, object] = field(default_factory=dict)  # keys that must have these values if they are present
    optional: tuple[str, ...] = ()  # sizes that a file may leave out
    read: Callable[[dict[str, Any], Mapping[str, object]], None] = _unchanged
    write: Callable[[dict[str, Any], Mapping[str, Any]], None] = _unchanged


@dataclass(frozen=True)
class Family:
    """A model family. `model` and `config` are "module:class", imported when a model is built."""

    name: str
    title: str  # with its article: "a BERT"
    year: int
    description: str
    model: str
    config: str
    capabilities: frozenset[Capability]
    heads: tuple[str, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    file_format: FileFormat | None = None  # None: Regard's own, with our names
    earlier_keys: Mapping[str, str] = field(default_factory=dict)  # config.json keys of earlier versions of Regard
    pretraining: str | None = None  # the recipe of `regard pretrain`

    def can(self, capability: Capability) -> bool:
        check_choice("capability", capability, get_args(Capability))
        return capability in self.capabilities

    @property
    def config_class(self) -> Any:
        return _resolve(self.config)

    @property
    def model_class(self) -> Any:
        return _resolve(self.model)


def _resolve(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


@cache
def families() -> dict[str, Family]:
    """Every family by name, the oldest first."""
    from regard.models import families as package

    modules = [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]
    return {one.name: one for one in sorted((m.FAMILY for m in modules), key=lambda one: (one.year, one.name))}


def get_family(name: str) -> Family:
    check_choice("model family", name, families())
    return families()[name]


def describe_family(name: str) -> str:
    """A family in a sentence, by its name or that of its pretraining recipe: "a BERT", "an ELMo"."""
    found = (family.title for family in families().values() if name in (family.name, family.pretraining))
    return next(found, f"a {name}")


@cache
def known_checkpoints() -> list[Checkpoint]:
    """The hub checkpoints of all families, with their sizes."""
    return [replace(one, family=family.name) for family in families().values() for one in family.checkpoints]


def family_name(model: object) -> str:
    """The family's name as in config.json; the class name for a module of no family."""
    return str(getattr(getattr(model, "config", None), "family", type(model).__name__))


def family_of(model: object) -> Family | None:
    """The family of a model, None for a module of no family."""
    return families().get(family_name(model))


def describe_model(model: object) -> str:
    """The model in a sentence: "a BERT", "an ELMo"."""
    return describe_family(family_name(model))


def can(model: object, capability: Capability) -> TypeGuard[Any]:
    """Whether a model has a capability, with the heads that it needs. A type checker then allows all attributes."""
    family = family_of(model)
    if family is None or not family.can(capability):
        return False
    needed = {"masked-lm": ("masked",), "next-sentence": ("pooler", "next"), "pooling": ("pooler",)}.get(capability, ())
    return all(getattr(model, head, None) is not None for head in needed)


def build(config: Any, *, heads: Collection[str] | None = None) -> Any:
    """The model that a config describes, with new weights; `heads` None: the family's usual heads."""
    family = get_family(config.family)
    options = {"heads": heads} if family.heads and heads is not None else {}
    return family.model_class(config, **options)
