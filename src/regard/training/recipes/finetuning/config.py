"""The settings of a fine-tuning run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from regard.settings import SettingsFile, SettingsSection, SettingsTables
from regard.training.settings import CHANGEABLE_SETTINGS, RunSection, TrainingSection

DISTILLATION_DEFAULTS: dict[str, dict[str, object]] = {
    "training": {"num_epochs": 5, "base_learning_rate": 1e-4, "adversarial_epsilon": 0.0}
}

# Muon's orthogonalization and adversarial passes cost more than small batches: most of the time of a run on few rows.
FEW_ROWS_DEFAULTS: dict[str, object] = {"optimizer": "adamw", "base_learning_rate": 2e-4, "adversarial_epsilon": 0.0}


class FineTuningSection(TrainingSection):
    """The defaults, and those of a task where it has others, are the best of `benchmarks/default_recipe.py`."""

    min_steps: int = Field(
        default=60,
        ge=0,
        le=1 << 20,
        description="Epochs are added for few examples until there are so many steps; 0 if num_epochs is given.",
    )
    batch_size: int = Field(default=32, ge=1, le=1 << 20, description="Examples per step.")
    base_learning_rate: float = Field(
        default=2e-4, gt=0, le=10, description="Peak learning rate for a hidden size of 384; larger models get less."
    )
    dropout: float = Field(default=-1.0, ge=-1, lt=1, description="Dropout; -1: as the model was pretrained.")
    adversarial_epsilon: float = Field(
        default=0.2,
        ge=0,
        le=100,
        description="Size of the adversarial perturbation of word embeddings; 0 disables it and halves the time.",
    )
    max_length: int = Field(
        default=0, ge=0, le=1 << 16, description="Maximum tokens per example; 0: the task's default."
    )
    layerwise_lr_decay: float = Field(
        default=1.0, gt=0, le=1, description="Learning rate of a layer relative to that of the layer above it."
    )
    unfreeze: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the run over which layers are unfrozen, from the top; 0: all at once.",
    )
    frozen: bool = Field(default=False, description="Train only the task head; the encoder stays frozen.")
    baseline: bool = Field(
        default=True, description="Also fit a linear model on vectors of texts, and keep the better model."
    )
    class_weights: Literal["none", "balanced"] | dict[str, Annotated[float, Field(ge=0)]] = Field(
        default="none",
        description='Weights of classes in the loss: "none", "balanced", or {"label" = weight}; 1 for others.',
    )


class FineTuningRunSection(RunSection):
    num_seeds: int = Field(default=1, ge=1, le=1000, description="Number of runs with consecutive seeds.")


class VisionSection(SettingsSection):
    """The shape of a new Vision Transformer."""

    hidden_size: int = Field(default=64, ge=1, le=1 << 16, description="Size of the hidden states.")
    num_hidden_layers: int = Field(default=6, ge=1, le=1000, description="Number of layers.")
    num_attention_heads: int = Field(
        default=4, ge=1, le=1000, description="Attention heads per layer; a divisor of hidden_size."
    )
    intermediate_size: int = Field(default=128, ge=1, le=1 << 18, description="Size of the feed-forward layers.")
    patch_size: int = Field(default=4, ge=1, le=1 << 12, description="Side of a patch in pixels.")
    max_shift: int = Field(
        default=2, ge=0, le=1 << 12, description="Maximum random shift of training images, in pixels."
    )


class FineTuningConfig(SettingsFile):
    example: ClassVar[str] = "training.num_epochs=4"
    changeable: ClassVar[frozenset[str]] = CHANGEABLE_SETTINGS

    vision: VisionSection = VisionSection()
    training: FineTuningSection = FineTuningSection()
    run: FineTuningRunSection = FineTuningRunSection()

    _given: frozenset[str] = PrivateAttr(frozenset())  # settings of files and of the user, as "section.key"

    def for_few_rows(self) -> Self:
        """The same with defaults for few rows; what is given stays."""
        given = {key.removeprefix("training.") for key in self._given}
        of_optimizer = {"optimizer", "base_learning_rate", "learning_rate"}
        kept = given | (of_optimizer if given & of_optimizer else set())
        chosen = {key: value for key, value in FEW_ROWS_DEFAULTS.items() if key not in kept}
        return self.model_copy(update={"training": self.training.model_copy(update=chosen)})

    @classmethod
    def load(cls, path: Any = None, **options: Any) -> Self:
        given: set[str] = set()

        def fill(document: SettingsTables, origins: Mapping[str, str]) -> None:
            """Train a number of epochs that was given as it is."""
            given.update(origins)
            if "training.num_epochs" in origins:
                document["training"].setdefault("min_steps", 0)

        config = super().load(path, check=fill, **options)
        config._given = frozenset(given)
        return config
