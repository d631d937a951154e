"""The configuration of a pretraining run, checked as a whole. Knows nothing of corpora, models or devices."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from pydantic import model_validator

from regard.errors import InputError
from regard.models.family import describe_family
from regard.settings import SettingsFile, SettingsSection, SettingsTables
from regard.training.pretraining.sections import (
    DataSection,
    Family,
    ModelSection,
    ObjectiveSection,
    OptimizerSection,
    PretrainingRunSection,
    ScheduleSection,
    VocabularySection,
)
from regard.training.settings import RENAMED_SETTINGS

__all__ = ["PretrainingConfig"]

# Where a family's defaults are not those of BERT.
DEFAULTS: dict[Family, dict[str, dict[str, object]]] = {
    "bert": {},
    "gpt": {
        "model": {"activation": "gelu-tanh"},
        "vocabulary": {"kind": "bpe", "lowercase": False},
        "objective": {"sentence_pairs": "none"},
    },
    "t5": {
        "model": {"activation": "relu"},
        "vocabulary": {"kind": "bpe", "lowercase": False},
        "objective": {"sentence_pairs": "none"},
    },
    "elmo": {"model": {"num_attention_heads": 1}, "objective": {"sentence_pairs": "none"}},
}

# Families whose task has no settings.
FIXED = {
    "gpt": "a GPT tells the next word of all its text",
    "elmo": "an ELMo tells the next word and the one before of all its text",
}

# What else does nothing for a family. It is written with all the rest, so its default is no mistake.
UNUSED: dict[Family, tuple[str, ...]] = {
    "bert": ("objective.mean_noise_span_length",),
    "gpt": (),
    "t5": (
        "model.attention_dropout",
        "data.position_shift_probability",
        "objective.replacement_probabilities",
        "objective.whole_word_mask",
        "objective.sentence_pairs",
        "objective.short_seq_prob",
    ),
    "elmo": (
        "model.num_attention_heads",
        "model.attention_dropout",
        "model.activation",
        "data.position_shift_probability",
        "run.gradient_checkpointing",
    ),
}


class PretrainingConfig(SettingsFile):
    """All settings of a run."""

    example: ClassVar[str] = "optimizer.learning_rate=2e-3"
    renamed: ClassVar[Mapping[str, str]] = RENAMED_SETTINGS

    model: ModelSection = ModelSection()
    vocabulary: VocabularySection = VocabularySection()
    data: DataSection = DataSection()
    objective: ObjectiveSection = ObjectiveSection()
    optimizer: OptimizerSection = OptimizerSection()
    schedule: ScheduleSection = ScheduleSection()
    run: PretrainingRunSection = PretrainingRunSection()

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        family: Family,
        overrides: Sequence[str] = (),
        saved: bool = False,
    ) -> PretrainingConfig:
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
                    raise InputError(f"{origin}: {key} does nothing for {describe_family(family)}; remove it")

        return cls.load(path, overrides=overrides, defaults=DEFAULTS[family], check=check, saved=saved)

    def sections(self) -> list[str]:
        return [name for name in super().sections() if not (name == "objective" and self.model.family in FIXED)]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        model, data = self.model, self.data
        if model.hidden_size % model.num_attention_heads:
            raise ValueError(
                f"model.num_attention_heads is {model.num_attention_heads}, which does not divide model.hidden_size, "
                f"{model.hidden_size}"
            )
        if data.max_length > model.max_position_embeddings:
            raise ValueError(
                f"data.max_length is {data.max_length}, and the model reads {model.max_position_embeddings} tokens; "
                "make data.max_length smaller or model.max_position_embeddings larger"
            )
        if data.tokens_per_batch < data.max_length:
            raise ValueError(
                f"data.tokens_per_batch is {data.tokens_per_batch}: less than one row of data.max_length, "
                f"{data.max_length}, tokens"
            )
        micro = data.tokens_per_micro_batch
        if micro and (data.tokens_per_batch % micro or micro < data.max_length):
            raise ValueError(
                f"data.tokens_per_micro_batch is {micro}; expected a divisor of data.tokens_per_batch, "
                f"{data.tokens_per_batch}, that holds a row of {data.max_length} tokens"
            )
        if model.family == "bert" and self.vocabulary.kind == "bpe" and not self.vocabulary.path:
            raise ValueError("vocabulary.kind is 'bpe', which has no [MASK] for a BERT; use 'wordpiece'")
        if model.family == "elmo" and self.vocabulary.kind == "bpe" and not self.vocabulary.path:
            raise ValueError("vocabulary.kind is 'bpe', which has no [CLS] and [SEP] for an ELMo; use 'wordpiece'")
        if model.family == "t5" and self.vocabulary.kind == "wordpiece" and not self.vocabulary.path:
            raise ValueError("vocabulary.kind is 'wordpiece', which has no sentinels for a T5; use 'bpe'")
        if model.family == "elmo" and model.intermediate_size < model.hidden_size:
            raise ValueError(
                f"model.intermediate_size is {model.intermediate_size}: an ELMo's LSTMs have at least as many cells as "
                f"model.hidden_size, {model.hidden_size}"
            )
        return self


def _default(family: Family, section: str, key: str) -> object:
    """What a setting is where nobody says anything."""
    plain: SettingsSection = getattr(PretrainingConfig(), section)
    return DEFAULTS[family].get(section, {}).get(key, getattr(plain, key))
