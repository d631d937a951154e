"""Builds the model of a pretraining run: new, or a pretrained one to continue from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.checkpoints import loading
from regard.errors import InputError
from regard.files.durable_folder import describe_changes
from regard.models.family import build, describe_family, family_name, pretrainable_families
from regard.text import Tokenizer
from regard.training.recipes.pretraining.config import PretrainingConfig

DROPOUTS = ("dropout", "attention_dropout")


def model_config(config: PretrainingConfig, **fields: Any) -> Any:
    """The configuration of the model that the settings describe."""
    family = pretrainable_families()[config.model.family]
    return family.config_class(family=family.name, **config.recipe.config_fields(dict(config.model)), **fields)


def trained_heads(config: PretrainingConfig) -> tuple[str, ...] | None:
    """The heads that a run trains; None: the family's default. Without sentence pairs there are no heads for them."""
    if config.recipe.objective == "replaced-token-detection":
        return ("discriminator",)
    if config.recipe.objective != "masked-lm":
        return None
    return ("mlm_head",) if config.objective.sentence_pairs == "none" else ("pooler", "mlm_head", "nsp_head")


def new_model(config: PretrainingConfig, tokenizer: Tokenizer) -> Any:
    """A model with new weights."""
    ids = {name: getattr(tokenizer, token) for name, token in config.recipe.token_ids.items()}
    model = build(model_config(config, vocab_size=tokenizer.size, **ids), output_heads=trained_heads(config))
    return model if config.recipe.trained_model is None else config.recipe.trained_model(model)


def pretrained_model(config: PretrainingConfig, tokenizer: Tokenizer, name: str) -> Any:
    """A pretrained model to continue from; its shape and vocabulary must match the settings."""
    if config.recipe.trained_model is not None:
        title = describe_family(config.model.family)
        raise InputError(
            f"{title} cannot be trained from {name}: the other model that it is trained with is new. Start without a "
            "model, or continue an interrupted run with --resume"
        )
    found: Any
    found, vocabulary = loading.load(name)
    family = pretrainable_families()[config.model.family]
    if family_name(found) != family.name:
        raise InputError(f"{name} is not a {config.model.family}; start from a model of that family")
    if vocabulary is None or vocabulary.vocabulary != tokenizer.vocabulary:
        raise InputError(f"{name} has another vocabulary than the corpus; set vocabulary.path to that model's folder")
    settings = config.recipe.config_fields(dict(config.model))
    dropouts = {key: value for key, value in settings.items() if key in DROPOUTS}
    wanted = {key: value for key, value in settings.items() if key not in DROPOUTS}
    if different := describe_changes({key: getattr(found.config, key) for key in wanted}, wanted):
        raise InputError(f"{name} has another shape than [model]: {'; '.join(different)}. Set [model] to its shape")
    present = tuple(head for head in family.output_heads if getattr(found, head) is not None)
    new = build(replace(found.config, **dropouts), output_heads=trained_heads(config) or present or None)
    if missing := new.load_state_dict(found.state_dict(), strict=False).missing_keys:
        heads = ", ".join(sorted({key.split(".")[0] for key in missing}))
        raise InputError(
            f"{name} lacks heads that this run trains: {heads}; start from a model that was pretrained for it"
        )
    return new
