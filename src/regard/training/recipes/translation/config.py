"""The settings of a translation run. The defaults suit some ten thousand pairs of short sentences."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from regard.errors import check_choice
from regard.inference.translation.subwords import MIN_VOCAB_SIZE
from regard.models.family import translation_families
from regard.settings import SettingsFile, SettingsSection, SettingsTables
from regard.training.settings import (
    AdamEpsilon,
    AverageEpochs,
    LearningRate,
    NumEpochs,
    RunSection,
    Scheduler,
    TrainingSection,
    WarmupRatio,
    WarmupSteps,
    WeightDecay,
)

DEFAULT_VOCAB_SIZE = 8000


class TranslatorSection(SettingsSection):
    family: str = Field(default="transformer", description="A family with a translation recipe: transformer or lstm.")
    hidden_size: int = Field(default=256, ge=1, le=1 << 14, description="Size of the hidden states.")
    num_hidden_layers: int = Field(
        default=3, ge=1, le=100, description="Layers of the encoder, and as many of the decoder."
    )
    dropout: float = Field(default=0.3, ge=0, lt=1, description="Dropout probability.")
    num_attention_heads: int = Field(
        default=4, ge=1, le=1000, description="transformer: attention heads; a divisor of hidden_size."
    )
    intermediate_size: int = Field(
        default=1024, ge=1, le=1 << 16, description="transformer: size of the feed-forward layers."
    )
    norm_first: bool = Field(
        default=True, description="transformer: layer norm before each sublayer; false: after it, as in 2017."
    )
    embedding_size: int = Field(default=256, ge=1, le=1 << 14, description="lstm: size of the word embeddings.")
    score: Literal["dot", "general", "additive", "none"] = Field(
        default="general", description="lstm: attention score function."
    )
    recipe: Literal["luong", "deck"] = Field(
        default="luong", description="lstm: attention after the cell (luong) or before it (deck)."
    )
    bidirectional: bool = Field(default=True, description="lstm: bidirectional encoder.")


class SubwordSection(SettingsSection):
    vocab_size: int = Field(
        default=0,
        ge=0,
        le=1 << 20,
        description=f"Maximum number of subwords, per language if they are not joint; 0: {DEFAULT_VOCAB_SIZE:,}.",
    )
    exact: bool = Field(default=False, description="Refuse a text that supports fewer subwords.")
    joint: bool = Field(default=True, description="Both languages share one vocabulary.")

    @field_validator("vocab_size")
    @classmethod
    def _holds_all_bytes(cls, value: int) -> int:
        if 0 < value < MIN_VOCAB_SIZE:
            raise ValueError(
                f"expected at least {MIN_VOCAB_SIZE}, all bytes and the special tokens, or 0 for the default, and it "
                f"is {value}"
            )
        return value


class TranslationTrainingSection(TrainingSection):
    num_epochs: NumEpochs = 30
    tokens_per_batch: int = Field(
        default=4096, ge=1, le=1 << 24, description="Tokens per step, of the longer side, with padding."
    )
    learning_rate: LearningRate = 1e-3
    weight_decay: WeightDecay = 0.0
    adam_epsilon: AdamEpsilon = 1e-9
    warmup_ratio: WarmupRatio = 0.0
    warmup_steps: WarmupSteps = 1000
    lr_scheduler_type: Scheduler = "noam"
    average_epochs: AverageEpochs = 5
    label_smoothing: float = Field(default=0.1, ge=0, lt=1, description="Label smoothing.")
    rdrop_weight: float = Field(
        default=0.0, ge=0, le=100, description="Weight of R-Drop's divergence between two passes; 0 disables it."
    )
    max_length: int = Field(default=200, ge=2, le=1 << 16, description="Pairs with more tokens on a side are left out.")
    num_beams: int = Field(default=1, ge=1, le=100, description="Beams for the translations of dev; 1: greedy.")


class TranslationConfig(SettingsFile):
    example: ClassVar[str] = "training.num_epochs=20"

    model: TranslatorSection = TranslatorSection()
    vocabulary: SubwordSection = SubwordSection()
    training: TranslationTrainingSection = TranslationTrainingSection()
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        model, size = self.model, self.model.hidden_size
        recurrent = translation_families()[model.family].can("recurrent")
        if not recurrent and size % model.num_attention_heads:
            raise ValueError(
                f"model.num_attention_heads is {model.num_attention_heads}, which does not divide model.hidden_size, "
                f"{size}"
            )
        if not recurrent and size % 2:
            raise ValueError(f"model.hidden_size is {size}; sinusoidal positions need an even size")
        if recurrent and model.bidirectional and size % 2:
            raise ValueError(f"model.hidden_size is {size}; two directions share it, so it must be even")
        return self

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None = None, *, overrides: Sequence[str] = ()) -> Self:
        """Load settings with the defaults of the family."""
        return cls.load(path, overrides=overrides, check=_apply_family_defaults)


def _apply_family_defaults(document: SettingsTables, origins: Mapping[str, str]) -> None:
    family = document["model"].get("family", "transformer")
    if isinstance(family, str):
        check_choice("model.family", family, translation_families())
        recipe = translation_families()[family].translation
        assert recipe is not None
        for section, table in recipe.defaults.items():
            document[section] = {**table, **document[section]}
