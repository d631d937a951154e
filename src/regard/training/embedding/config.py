"""The settings of a run that trains a sentence-embedding model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Strict, field_validator, model_validator

from regard.settings import SettingsFile, SettingsSection
from regard.training.old_settings import OldRunSection
from regard.training.settings import RENAMED_SETTINGS, parse_budget

Size = Annotated[int, Field(ge=1, le=1 << 16)]
LAX = Strict(False)  # TOML has lists where Python has tuples


class EmbeddingModelSection(SettingsSection):
    num_hidden_layers: int = Field(
        default=0, ge=0, le=1000, description="Keep the first N layers of the start model; 0: all of them."
    )
    max_length: int = Field(default=256, ge=3, le=1 << 16, description="Maximum tokens per text; longer ones are cut.")
    dropout: float = Field(default=-1.0, ge=-1, lt=1, description="Dropout; -1: as the model was pretrained.")
    normalize: bool = Field(default=True, description="Divide each vector by its length.")


class EmbeddingObjectiveSection(SettingsSection):
    temperature: float = Field(
        default=0.05, gt=0, le=10, description="Cosines are divided by it before the softmax; 0.05 is a scale of 20."
    )
    matryoshka: Annotated[tuple[Size, ...], LAX] = Field(
        default=(), description="Sizes of truncated vectors to train too, such as [384, 192, 96]; empty: none."
    )
    cosine_weight: float = Field(
        default=5.0, ge=0, le=1000, description="Teacher: weight of 1 - cosine of the two vectors of a text."
    )
    contrastive_weight: float = Field(
        default=1.0,
        ge=0,
        le=1000,
        description="Teacher: weight of finding the teacher's vector of a text in the batch.",
    )
    similarity_weight: float = Field(
        default=1.0, ge=0, le=1000, description="Teacher: weight of the divergence of the similarities in a batch."
    )
    teacher_temperature: float = Field(
        default=0.05, gt=0, le=10, description="Teacher: temperature of the similarities in a batch."
    )


class EmbeddingTrainingSection(SettingsSection):
    num_epochs: int = Field(default=3, ge=1, le=1 << 20, description="Number of epochs, without max_steps or budget.")
    max_steps: int = Field(default=0, ge=0, le=1 << 40, description="Length of the run in steps; 0: see num_epochs.")
    budget: str = Field(default="", description='Length of the run in time, "20min"; empty: see num_epochs.')
    batch_size: int = Field(
        default=64, ge=2, le=1 << 20, description="Rows per step; the other rows of a batch are the negatives."
    )
    group_size: int = Field(
        default=1, ge=1, le=1 << 20, description="Neighboring rows that stay together in a batch; 1: none."
    )
    learning_rate: float = Field(
        default=0.0, ge=0, le=10, description="Peak learning rate; 0: chosen from the hidden size."
    )
    optimizer: Literal["adamw", "muon"] = Field(
        default="adamw", description="adamw, or muon for the weight matrices of the layers."
    )
    weight_decay: float = Field(default=0.01, ge=0, le=10, description="Weight decay of matrices.")
    warmup_ratio: float = Field(default=0.1, ge=0, le=1, description="Share of the run for learning rate warmup.")
    lr_scheduler_type: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="Decay after warmup: linear, cosine or constant."
    )
    max_grad_norm: float = Field(default=1.0, ge=0, description="Maximum gradient norm; 0 disables clipping.")
    select: Literal["best", "last"] = Field(default="best", description="Epoch to keep: the best on dev, or the last.")

    @field_validator("budget")
    @classmethod
    def _is_duration(cls, value: str) -> str:
        if value:
            parse_budget(value)
        return value

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if self.max_steps and self.budget:
            raise ValueError("training.max_steps and training.budget both say how long to train; set one of them")
        return self


class EmbeddingRunSection(OldRunSection):
    compile: Literal["auto", "on", "off"] = Field(default="auto", description="torch.compile; auto: on a GPU.")


class EmbeddingConfig(SettingsFile):
    example: ClassVar[str] = "training.num_epochs=4"
    renamed: ClassVar[Mapping[str, str]] = RENAMED_SETTINGS

    model: EmbeddingModelSection = EmbeddingModelSection()
    objective: EmbeddingObjectiveSection = EmbeddingObjectiveSection()
    training: EmbeddingTrainingSection = EmbeddingTrainingSection()
    run: EmbeddingRunSection = EmbeddingRunSection()
