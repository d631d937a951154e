"""The settings of a run that trains a sentence-embedding model."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, Strict

from regard.settings import SettingsFile, SettingsSection
from regard.training.settings import RunSection, TrainingSection

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


class EmbeddingTrainingSection(TrainingSection):
    batch_size: int = Field(
        default=64, ge=2, le=1 << 20, description="Rows per step; the other rows of a batch are the negatives."
    )
    group_size: int = Field(
        default=1, ge=1, le=1 << 20, description="Neighboring rows that stay together in a batch; 1: none."
    )


class EmbeddingConfig(SettingsFile):
    example: ClassVar[str] = "training.num_epochs=4"

    model: EmbeddingModelSection = EmbeddingModelSection()
    objective: EmbeddingObjectiveSection = EmbeddingObjectiveSection()
    training: EmbeddingTrainingSection = EmbeddingTrainingSection()
    run: RunSection = RunSection()
