"""The settings of a fine-tuning run. The defaults of a task fit small data and a model of any width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from regard.settings import Precision, SettingsFile, SettingsSection
from regard.training.schedule import Every
from regard.training.settings import RENAMED_SETTINGS

__all__ = ["DEFAULTS", "FineTuningConfig", "FineTuningRunSection", "FineTuningSection", "VisionSection"]

# Where a task wants other than the defaults below.
DEFAULTS: dict[str, dict[str, dict[str, object]]] = {
    "classify": {},
    "pair": {"training": {"num_epochs": 5}},
    "regress": {"training": {"num_epochs": 5}},
    "choose": {"training": {"batch_size": 16}},
    "tag": {"training": {"num_epochs": 5}},
    "answer": {"training": {"num_epochs": 2}},
    "distill": {"training": {"num_epochs": 5}},
    "pictures": {
        "training": {
            "num_epochs": 12,
            "batch_size": 128,
            "learning_rate": 2e-3,
            "optimizer": "muon",
            "weight_decay": 0.05,
        }
    },
}


class FineTuningSection(SettingsSection):
    num_epochs: int = Field(default=3, ge=1, le=1 << 20, description="how often the examples are seen")
    batch_size: int = Field(default=32, ge=1, le=1 << 20, description="examples of a step")
    learning_rate: float = Field(
        default=0.0, ge=0, le=10, description="the highest learning rate; 0: what suits the model"
    )
    optimizer: Literal["adamw", "muon"] = Field(default="adamw", description="adamw, or muon for matrices in layers")
    weight_decay: float = Field(default=0.01, ge=0, le=10, description="how much of a matrix goes, times the rate")
    warmup_ratio: float = Field(default=0.1, ge=0, le=1, description="share of the run in which the rate rises")
    max_grad_norm: float = Field(default=1.0, ge=0, description="the longest gradient; 0: any")
    dropout: float = Field(default=-1.0, ge=-1, lt=1, description="-1: as much as the model was pretrained with")
    adversarial_epsilon: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="how far word vectors are moved in a second pass; 0: no such pass",
    )
    max_length: int = Field(default=0, ge=0, le=1 << 16, description="tokens of a row at most; 0: what suits the task")
    layerwise_lr_decay: float = Field(
        default=1.0, gt=0, le=1, description="the rate of a layer as a share of that of the layer above it"
    )
    unfreeze: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of the run in which layers begin to learn, one after the other from the top; 0: at once",
    )
    frozen: bool = Field(default=False, description="whether only the new layer learns")
    select: Literal["best", "last"] = Field(default="best", description="the epoch that is kept: best on dev, or last")
    early_stopping_patience: int = Field(
        default=0, ge=0, le=1 << 20, description="epochs without a better score before it ends; 0: all"
    )


class FineTuningRunSection(SettingsSection):
    seed: int = Field(
        default=0, ge=0, lt=1 << 62, description="of new weights, order and dropout; the first of several"
    )
    num_seeds: int = Field(default=1, ge=1, le=1000, description="how many runs, each with its own seed")
    precision: Precision = Field(default="auto", description="auto: bf16 on a GPU that has it, else fp32")
    checkpoint_every: Every = Field(default="2min", description='"2min" or "500 steps"; empty: after each epoch only')


class VisionSection(SettingsSection):
    """Of a new model that looks at pictures; one that is given has its own shape."""

    hidden_size: int = Field(default=64, ge=1, le=1 << 16, description="numbers in a patch's vector")
    num_hidden_layers: int = Field(default=6, ge=1, le=1000, description="layers")
    num_attention_heads: int = Field(
        default=4, ge=1, le=1000, description="attention heads of a layer; they divide the width"
    )
    intermediate_size: int = Field(default=128, ge=1, le=1 << 18, description="width inside the feed-forward networks")
    patch_size: int = Field(default=4, ge=1, le=1 << 12, description="pixels on a side of a patch")
    max_shift: int = Field(
        default=2, ge=0, le=1 << 12, description="pixels by which pictures move in training, at most"
    )


class FineTuningConfig(SettingsFile):
    example: ClassVar[str] = "training.num_epochs=4"
    renamed: ClassVar[Mapping[str, str]] = RENAMED_SETTINGS

    vision: VisionSection = VisionSection()
    training: FineTuningSection = FineTuningSection()
    run: FineTuningRunSection = FineTuningRunSection()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.training.adversarial_epsilon and self.training.unfreeze:
            raise ValueError(
                "training.adversarial_epsilon moves word vectors, which training.unfreeze freezes at first; "
                "set one of them"
            )
        return self
