"""Model families: capabilities, checkpoints and file formats. Importing this module does not import torch.

Each module in `regard.models.families` declares one family as `FAMILY`. Other code tests the capabilities of a model,
`can(model, "masked-lm")`, instead of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, TypeGuard, get_args

from regard.errors import check_choice

Capability = Literal[
    "text-encoder",  # a Transformer that reads text in both directions
    "masked-lm",  # predicts masked tokens
    "next-sentence",  # predicts whether two sentences follow each other
    "causal-lm",  # reads from left to right and predicts the next token
    "encoder-decoder",  # encodes a source and decodes a target
    "text-generation",  # continues a prompt
    "translation",  # trained on sentence pairs, with one vocabulary per language
    "image",  # reads pixels
    "fine-tuning",  # takes a task head
    "pooling",  # has a pooler
    "segments",  # distinguishes the sentences of a pair
    "layer-mix",  # tasks use a weighted sum of all layers
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
    heads: tuple[str, ...] | None = None  # None: the default heads of the family
    family: str = ""  # set by the family


@dataclass(frozen=True)
class TensorNames:
    """Regard's parameter names and their names in transformers' files.

    `prefix` precedes the names of the base model and may be missing in a file. `layers` maps the path of each stack
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
    """The file format of a family in transformers: config.json keys by field name, required values and tensor names.

    `read(fields, document)` completes the fields read from config.json; `write(document, fields)` completes a new one.
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
    file_format: FileFormat | None = None  # None: Regard's own format
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
    """Return all families by name, oldest first."""
    from regard.models import families as package

    modules = [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]
    ordered = sorted((module.FAMILY for module in modules), key=lambda family: (family.year, family.name))
    return {family.name: family for family in ordered}


def get_family(name: str) -> Family:
    check_choice("model family", name, families())
    return families()[name]


def describe_family(name: str) -> str:
    """Return a family with its article, "a BERT" or "an ELMo", by its name or that of its pretraining recipe."""
    titles = (family.title for family in families().values() if name in (family.name, family.pretraining))
    return next(titles, f"a {name}")


@cache
def known_checkpoints() -> list[Checkpoint]:
    """Return the hub checkpoints of all families."""
    return [replace(entry, family=family.name) for family in families().values() for entry in family.checkpoints]


def family_name(model: object) -> str:
    """Return the name of the family as in config.json, or the class name if the module belongs to no family."""
    return str(getattr(getattr(model, "config", None), "family", type(model).__name__))


def family_of(model: object) -> Family | None:
    """Return the family of a model, or None."""
    return families().get(family_name(model))


def describe_model(model: object) -> str:
    """Return the family of a model with its article: "a BERT", "an ELMo"."""
    return describe_family(family_name(model))


def can(model: object, capability: Capability) -> TypeGuard[Any]:
    """Whether a model has a capability and the heads that it requires. Type checkers then allow all attributes."""
    family = family_of(model)
    if family is None or not family.can(capability):
        return False
    required = {"masked-lm": ("masked",), "next-sentence": ("pooler", "next"), "pooling": ("pooler",)}.get(
        capability, ()
    )
    return all(getattr(model, head, None) is not None for head in required)


def build(config: Any, *, heads: Collection[str] | None = None) -> Any:
    """Build the model of a config with new weights; `heads` defaults to those of the family."""
    family = get_family(config.family)
    options = {"heads": heads} if family.heads and heads is not None else {}
    return family.model_class(config, **options)
