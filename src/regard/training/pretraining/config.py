"""The configuration of a pretraining run, checked as a whole. Knows nothing of corpora, models or devices."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from pydantic import model_validator

from regard.errors import InputError
from regard.known import one_of
from regard.settings import SettingsFile, SettingsSection, SettingsTables
from regard.training.pretraining.sections import Data, Family, Model, Objective, Optimizer, Run, Schedule, Vocabulary

__all__ = ["Config"]

# Where a family's defaults are not those of BERT.
DEFAULTS: dict[Family, dict[str, dict[str, object]]] = {
    "bert": {},
    "gpt": {
        "model": {"activation": "gelu-tanh"},
        "vocabulary": {"kind": "bpe", "lowercase": False},
        "objective": {"pairs": "none"},
    },
    "t5": {
        "model": {"activation": "relu"},
        "vocabulary": {"kind": "bpe", "lowercase": False},
        "objective": {"pairs": "none"},
    },
    "elmo": {"model": {"heads": 1}, "objective": {"pairs": "none"}},
}

# Families whose task has no settings.
FIXED = {
    "gpt": "a GPT tells the next word of all its text",
    "elmo": "an ELMo tells the next word and the one before of all its text",
}

# What else does nothing for a family. It is written with all the rest, so its default is no mistake.
UNUSED: dict[Family, tuple[str, ...]] = {
    "bert": ("objective.span",),
    "gpt": (),
    "t5": (
        "model.attention_dropout",
        "data.shifted",
        "objective.replace",
        "objective.whole_words",
        "objective.pairs",
        "objective.short_pairs",
    ),
    "elmo": (
        "model.heads",
        "model.attention_dropout",
        "model.activation",
        "data.shifted",
        "run.gradient_checkpointing",
    ),
}


class Config(SettingsFile):
    """All settings of a run."""

    example: ClassVar[str] = "optimizer.rate=2e-3"

    model: Model = Model()
    vocabulary: Vocabulary = Vocabulary()
    data: Data = Data()
    objective: Objective = Objective()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    run: Run = Run()

    @classmethod
    def read(
        cls, path: str | os.PathLike[str] | None = None, *, family: Family, overrides: Sequence[str] = ()
    ) -> Config:
        """`load`, for a family and with its defaults."""

        def check(document: SettingsTables, origins: Mapping[str, str]) -> None:
            """What another family is for: a setting that does nothing would be taken for one that does."""
            if (named := document["model"].setdefault("family", family)) != family:
                raise InputError(f"{origins['model.family']}: model.family is {named!r}, and this trains a {family!r}")
            for key, origin in origins.items():
                if family in FIXED and key.startswith("objective."):
                    raise InputError(f"{origin}: {key} is for BERT; {FIXED[family]}, so remove it")
                section, name = key.split(".")
                value = document[section][name]
                value = tuple(value) if isinstance(value, list) else value
                if key in UNUSED[family] and value != _default(family, section, name):
                    raise InputError(f"{origin}: {key} does nothing for {one_of(family)}; remove it")

        return cls.load(path, overrides=overrides, defaults=DEFAULTS[family], check=check)

    def sections(self) -> list[str]:
        return [name for name in super().sections() if not (name == "objective" and self.model.family in FIXED)]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        model, data = self.model, self.data
        if model.width % model.heads:
            raise ValueError(f"model.heads is {model.heads}, which does not divide model.width, {model.width}")
        if data.length > model.positions:
            raise ValueError(
                f"data.length is {data.length}, and the model reads {model.positions} tokens; "
                "make data.length smaller or model.positions larger"
            )
        if data.batch < data.length:
            raise ValueError(f"data.batch is {data.batch} tokens: not one row of data.length, {data.length}")
        if data.micro and (data.batch % data.micro or data.micro < data.length):
            raise ValueError(
                f"data.micro is {data.micro}; expected a divisor of data.batch, {data.batch}, "
                f"that holds a row of {data.length} tokens"
            )
        if model.family == "bert" and self.vocabulary.kind == "bpe" and not self.vocabulary.path:
            raise ValueError("vocabulary.kind is 'bpe', which has no [MASK] for a BERT; use 'wordpiece'")
        if model.family == "elmo" and self.vocabulary.kind == "bpe" and not self.vocabulary.path:
            raise ValueError("vocabulary.kind is 'bpe', which has no [CLS] and [SEP] for an ELMo; use 'wordpiece'")
        if model.family == "t5" and self.vocabulary.kind == "wordpiece" and not self.vocabulary.path:
            raise ValueError("vocabulary.kind is 'wordpiece', which has no sentinels for a T5; use 'bpe'")
        if model.family == "elmo" and model.ffn < model.width:
            raise ValueError(
                f"model.ffn is {model.ffn}: an ELMo's LSTMs have at least as many cells as model.width, {model.width}"
            )
        return self


def _default(family: Family, section: str, key: str) -> object:
    """What a setting is where nobody says anything."""
    plain: SettingsSection = getattr(Config(), section)
    return DEFAULTS[family].get(section, {}).get(key, getattr(plain, key))
