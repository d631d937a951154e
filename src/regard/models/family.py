"""What a model family declares, and the functions that ask it. Importing this module does not import torch.

Each other module of `regard.models` is one family: the network and its declaration, `FAMILY`. It is named after the
family, with "_" for "-": `xlm_roberta` is xlm-roberta. Code outside this package tests the capabilities of a model,
`can(model, "masked-lm")`, never its class or its name.
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
    "replaced-token-detection",  # predicts for each token whether it was replaced
    "next-sentence",  # predicts whether two sentences follow each other
    "causal-lm",  # reads from left to right and predicts the next token
    "bidirectional-lm",  # two language models: one predicts the next token, the other the previous one
    "encoder-decoder",  # encodes a source and decodes a target
    "text-generation",  # continues a prompt
    "translation",  # trained on sentence pairs, with one vocabulary per language
    "image",  # reads pixels
    "image-text",  # gives images and texts vectors in one space
    "fine-tuning",  # takes a task head
    "pooling",  # has a pooler
    "segments",  # distinguishes the texts of a pair
    "layer-mix",  # tasks use a weighted sum of all layers
    "recurrent",  # has no Transformer layers
]
REQUIRED_HEADS: Mapping[Capability, tuple[str, ...]] = {
    "masked-lm": ("mlm_head",),
    "replaced-token-detection": ("discriminator",),
    "next-sentence": ("pooler", "nsp_head"),
    "bidirectional-lm": ("output",),
    "pooling": ("pooler",),
}
Objective = Literal[  # of pretraining
    "masked-lm", "causal-lm", "bidirectional-lm", "span-corruption", "replaced-token-detection"
]


@dataclass(frozen=True)
class Checkpoint:
    """A hub name, its size, and the config fields in which it differs from the family's base model."""

    name: str
    parameters: int
    shape: Mapping[str, object] = field(default_factory=dict)
    output_heads: tuple[str, ...] | None = None  # None: the default heads of the family
    family: str = ""  # set by the family


def shape(width: int, layers: int, heads: int, inner: int | None = None, **more: object) -> dict[str, object]:
    """Return the config fields of a checkpoint's size; the feed-forward layers have four times the width by default."""
    return {
        **more,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner or 4 * width,
    }


@dataclass(frozen=True)
class PretrainingRecipe:
    """How `regard pretrain NAME` trains a family: settings are those of the TOML file, fields those of the config.

    `config_fields(settings)` converts the section [model]; `token_ids` maps fields to attributes of the tokenizer.
    `trained_model(model)` is what is trained in place of the model, together with others.
    """

    name: str
    objective: Objective
    config_fields: Callable[[Mapping[str, Any]], dict[str, Any]]
    token_ids: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # that differ from the general ones
    unused: tuple[str, ...] = ()  # settings without effect
    trained_model: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class TranslationRecipe:
    """How `regard train translate --model NAME` trains a family.

    `config_fields(settings, subwords)` converts the section [model]; `subwords` are the vocabularies of both languages.
    """

    name: str
    config_fields: Callable[[Mapping[str, Any], Any], dict[str, Any]]
    defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # that differ from the general ones


@dataclass(frozen=True)
class Family:
    """A model family. `stacks` names the attributes that hold Transformer layers, in the order of the forward pass."""

    name: str
    title: str  # with its article: "a BERT"
    year: int
    description: str
    model_class: Any
    config_class: Any
    capabilities: frozenset[Capability]
    stacks: tuple[str, ...] = ()
    output_heads: tuple[str, ...] = ()
    image_processor: Mapping[str, object] = field(default_factory=dict)  # defaults of preprocessor_config.json
    pooler_activation: Literal["tanh", "relu", "gelu"] = "tanh"  # of a new pooler
    mlm_activation: str | None = None  # of the masked-LM head; None: that of the layers
    task_transform: bool = False  # all task heads begin with the layer, gelu and the norm of the masked-LM head
    num_separators: int = 1  # [SEP] tokens between the texts of a pair
    checkpoints: tuple[Checkpoint, ...] = ()
    pretraining: PretrainingRecipe | None = None
    translation: TranslationRecipe | None = None

    def can(self, capability: Capability) -> bool:
        check_choice("capability", capability, get_args(Capability))
        return capability in self.capabilities


@cache
def family_names() -> tuple[str, ...]:
    """Return the names of all families, which are those of the modules in this package."""
    from regard import models

    return tuple(module.name.replace("_", "-") for module in iter_modules(models.__path__) if module.name != "family")


@cache
def families() -> dict[str, Family]:
    """Return all families by name, oldest first."""
    ordered = sorted(map(get_family, family_names()), key=lambda family: (family.year, family.name))
    return {family.name: family for family in ordered}


def get_family(name: str) -> Family:
    check_choice("model family", name, family_names())
    family: Family = import_module(f"regard.models.{name.replace('-', '_')}").FAMILY
    return family


@cache
def pretrainable_families() -> dict[str, Family]:
    """Return the families with a pretraining recipe by the name of the recipe, oldest first."""
    return {family.pretraining.name: family for family in families().values() if family.pretraining is not None}


@cache
def translation_families() -> dict[str, Family]:
    """Return the families with a translation recipe by the name of the recipe, newest first."""
    ordered = reversed(families().values())
    return {family.translation.name: family for family in ordered if family.translation is not None}


def describe_family(name: str) -> str:
    """Return a family with its article, "a BERT" or "an ELMo", by its name or that of its pretraining recipe."""
    family = families().get(name) or pretrainable_families().get(name)
    return f"a {name}" if family is None else family.title


@cache
def known_checkpoints() -> list[Checkpoint]:
    """Return the hub checkpoints of all families."""
    return [replace(entry, family=family.name) for family in families().values() for entry in family.checkpoints]


def family_name(model: object) -> str:
    """Return the name of the family as in config.json, or the class name if the module belongs to no family."""
    return str(getattr(getattr(model, "config", None), "family", type(model).__name__))


def family_of(model: object) -> Family | None:
    """Return the family of a model, or None. Imports no other family."""
    name = family_name(model)
    return get_family(name) if name in family_names() else None


def describe_model(model: object) -> str:
    """Return the family of a model with its article: "a BERT", "an ELMo"."""
    return describe_family(family_name(model))


def can(model: object, capability: Capability) -> TypeGuard[Any]:
    """Whether a model has a capability and the heads that it requires. Type checkers then allow all attributes."""
    family = family_of(model)
    if family is None or not family.can(capability):
        return False
    return all(getattr(model, head, None) is not None for head in REQUIRED_HEADS.get(capability, ()))


def build(config: Any, *, output_heads: Collection[str] | None = None) -> Any:
    """Build the model of a config with new weights; `output_heads` defaults to those of the family."""
    family = get_family(config.family)
    options = {"output_heads": output_heads} if family.output_heads and output_heads is not None else {}
    return family.model_class(config, **options)
