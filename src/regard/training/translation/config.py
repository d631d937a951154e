"""The settings of a run that learns to translate. The defaults suit some ten thousand pairs of short sentences."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from regard.errors import check_choice
from regard.settings import Precision, SettingsFile, SettingsSection, SettingsTables
from regard.training.schedule import Every
from regard.training.settings import RENAMED_SETTINGS

__all__ = [
    "FAMILY_DEFAULTS",
    "Kind",
    "SubwordSection",
    "TranslationConfig",
    "TranslationRunSection",
    "TranslationTrainingSection",
    "TranslatorSection",
]

Kind = Literal["transformer", "lstm"]

# Where a kind wants other than the defaults below. On a GPU torch's LSTM kernel turns to float16 where autocast is on,
# whatever half type was asked for, and small gradients vanish in it.
FAMILY_DEFAULTS: dict[str, dict[str, dict[str, object]]] = {
    "transformer": {},
    "lstm": {"model": {"hidden_size": 512, "num_hidden_layers": 1}, "run": {"precision": "fp32"}},
}


class TranslatorSection(SettingsSection):
    family: Kind = Field(default="transformer", description="transformer, or lstm with attention")
    hidden_size: int = Field(default=256, ge=1, le=1 << 14, description="numbers in a hidden state")
    num_hidden_layers: int = Field(
        default=3, ge=1, le=100, description="layers of the encoder, and as many of the decoder"
    )
    dropout: float = Field(default=0.3, ge=0, lt=1, description="share of numbers that are left out in training")
    num_attention_heads: int = Field(
        default=4, ge=1, le=1000, description="transformer: attention heads; they divide the width"
    )
    intermediate_size: int = Field(
        default=1024, ge=1, le=1 << 16, description="transformer: width inside the feed-forward networks"
    )
    norm_first: bool = Field(default=True, description="transformer: norms before the layers, or after as in 2017")
    embedding_size: int = Field(default=256, ge=1, le=1 << 14, description="lstm: numbers in a word's vector")
    score: Literal["dot", "general", "additive", "none"] = Field(default="general", description="lstm: how it attends")
    recipe: Literal["luong", "deck"] = Field(default="luong", description="lstm: attend behind the cell, or before it")
    bidirectional: bool = Field(default=True, description="lstm: whether the encoder reads both ways")


class SubwordSection(SettingsSection):
    vocab_size: int = Field(
        default=8000, ge=260, le=1 << 20, description="subwords, of each language if they are not joint"
    )
    joint: bool = Field(default=True, description="whether both languages share their subwords")


class TranslationTrainingSection(SettingsSection):
    num_epochs: int = Field(default=30, ge=1, le=1 << 20, description="how often the pairs are seen, at most")
    tokens_per_batch: int = Field(
        default=4096, ge=1, le=1 << 24, description="tokens of a step, of the longer side, with padding"
    )
    learning_rate: float = Field(default=1e-3, gt=0, le=10, description="the highest learning rate")
    lr_scheduler_type: Literal["noam", "linear", "cosine", "constant"] = Field(
        default="noam", description="how the rate falls after warm-up; noam: with 1/sqrt(step)"
    )
    warmup_steps: int = Field(default=1000, ge=1, le=1 << 24, description="steps in which the rate rises")
    weight_decay: float = Field(default=0.0, ge=0, le=10, description="how much of a matrix goes, times the rate")
    max_grad_norm: float = Field(default=1.0, ge=0, description="the longest gradient; 0: any")
    label_smoothing: float = Field(default=0.1, ge=0, lt=1, description="share of each target that all words get")
    rdrop_weight: float = Field(
        default=0.0, ge=0, le=100, description="how much two passes with other dropout must agree (R-Drop); 0: one pass"
    )
    max_length: int = Field(
        default=200, ge=2, le=1 << 16, description="pairs of which a side has more tokens are left out"
    )
    num_beams: int = Field(default=1, ge=1, le=100, description="of the translations of dev that are judged; 1: greedy")
    early_stopping_patience: int = Field(
        default=0, ge=0, le=1 << 20, description="epochs without a better BLEU before it ends; 0: all"
    )
    average_epochs: int = Field(
        default=5, ge=1, le=100, description="last epochs whose weights are averaged at the end"
    )
    select: Literal["best", "average"] = Field(
        default="best", description="what is kept: the best epoch or the average, as dev says, or always the average"
    )


class TranslationRunSection(SettingsSection):
    seed: int = Field(default=0, ge=0, lt=1 << 62, description="of new weights, order and dropout")
    precision: Precision = Field(default="auto", description="auto: bf16 on a GPU that has it, else fp32")
    checkpoint_every: Every = Field(default="2min", description='"2min" or "500 steps"; empty: after each epoch only')


class TranslationConfig(SettingsFile):
    example: ClassVar[str] = "training.num_epochs=20"
    renamed: ClassVar[Mapping[str, str]] = {**RENAMED_SETTINGS, "training.warmup": "warmup_steps"}

    model: TranslatorSection = TranslatorSection()
    vocabulary: SubwordSection = SubwordSection()
    training: TranslationTrainingSection = TranslationTrainingSection()
    run: TranslationRunSection = TranslationRunSection()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        model = self.model
        if model.family == "transformer" and model.hidden_size % model.num_attention_heads:
            raise ValueError(
                f"model.num_attention_heads is {model.num_attention_heads}, which does not divide model.hidden_size, "
                f"{model.hidden_size}"
            )
        if model.family == "transformer" and model.hidden_size % 2:
            raise ValueError(f"model.hidden_size is {model.hidden_size}; positions come in pairs, so it must be even")
        if model.family == "lstm" and model.bidirectional and model.hidden_size % 2:
            raise ValueError(f"model.hidden_size is {model.hidden_size}; two directions share it, so it must be even")
        return self

    @classmethod
    def read(
        cls, path: str | os.PathLike[str] | None = None, *, overrides: Sequence[str] = (), saved: bool = False
    ) -> Self:
        """The settings of a file, single ones put in their place, with the defaults of their kind of model."""
        return cls.load(path, overrides=overrides, check=_completed, saved=saved)


def _completed(document: SettingsTables, origins: Mapping[str, str]) -> None:
    kind = document["model"].get("family", "transformer")
    if isinstance(kind, str):
        check_choice("model.family", kind, FAMILY_DEFAULTS)
        for section, table in FAMILY_DEFAULTS[kind].items():
            document[section] = {**table, **document[section]}
