"""The settings of a pretraining run, checked as a whole."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Strict, field_validator, model_validator

from regard.errors import InputError, check_choice
from regard.models.family import Objective, PretrainingRecipe, describe_family, pretrainable_families
from regard.settings import SettingsFile, SettingsSection, SettingsTables
from regard.training.settings import (
    CHANGEABLE_SETTINGS,
    AdamBetas,
    AdamEpsilon,
    AverageEpochs,
    Budget,
    IntervalSetting,
    LearningRate,
    MaxGradNorm,
    MaxSteps,
    MinLrRatio,
    Optimizer,
    Patience,
    RunSection,
    Scheduler,
    Select,
    TrainingSection,
    WarmupRatio,
    WeightDecay,
)

Probability = Annotated[float, Field(ge=0, le=1)]
DEFAULT_VOCAB_SIZE = 16384
LAX = Strict(False)  # TOML has lists where Python has tuples

# Objectives without settings.
FIXED_OBJECTIVES: dict[Objective, str] = {
    "causal-lm": "predicts the next token of all its text",
    "bidirectional-lm": "predicts the next and the previous token of all its text",
}

# Tokenizers that lack special tokens an objective needs: the kind, the tokens, and the kind to use.
UNFIT_TOKENIZERS: dict[Objective, tuple[str, str, str]] = {
    "masked-lm": ("bpe", "[MASK]", "wordpiece"),
    "replaced-token-detection": ("bpe", "[MASK]", "wordpiece"),
    "bidirectional-lm": ("bpe", "[CLS] and [SEP]", "wordpiece"),
    "span-corruption": ("wordpiece", "sentinels", "bpe"),
}


def get_recipe(family: str) -> PretrainingRecipe:
    """How `regard pretrain` trains a family."""
    check_choice("model family", family, pretrainable_families())
    recipe = pretrainable_families()[family].pretraining
    assert recipe is not None
    return recipe


class ModelSection(SettingsSection):
    family: str = Field(default="bert", description="A family with a pretraining recipe, such as bert.")
    hidden_size: int = Field(
        default=384, ge=1, le=1 << 16, description="Size of the hidden states; ELMo: per direction."
    )
    num_hidden_layers: int = Field(
        default=6, ge=1, le=1000, description="Number of layers; T5: of the encoder, and as many of the decoder."
    )
    num_attention_heads: int = Field(
        default=6, ge=1, le=1000, description="Attention heads per layer; a divisor of hidden_size."
    )
    intermediate_size: int = Field(
        default=1536, ge=1, le=1 << 18, description="Size of the feed-forward layers; ELMo: cells of an LSTM."
    )
    max_position_embeddings: int = Field(
        default=512, ge=1, le=1 << 16, description="Maximum number of tokens the model can read."
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout probability.")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout probability of attention weights.")
    activation: Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "silu"] = Field(
        default="gelu", description="gelu, gelu-tanh, quick-gelu, relu or silu."
    )


class VocabularySection(SettingsSection):
    path: str = Field(default="", description="A tokenizer's file or folder; empty: train one on the corpus.")
    kind: Literal["wordpiece", "bpe"] = Field(default="wordpiece", description="New tokenizer: wordpiece or bpe.")
    vocab_size: int = Field(
        default=0,
        ge=0,
        le=1 << 24,
        description=f"New tokenizer: maximum number of entries; 0: {DEFAULT_VOCAB_SIZE:,}.",
    )
    exact: bool = Field(default=False, description="New tokenizer: refuse a text that supports fewer entries.")
    lowercase: bool = Field(default=True, description="New tokenizer: convert text to lowercase.")
    min_frequency: int = Field(default=2, ge=1, le=1 << 30, description="New tokenizer: minimum frequency of an entry.")


class DataSection(SettingsSection):
    max_length: int = Field(default=128, ge=8, le=1 << 16, description="Tokens per row, with special tokens.")
    tokens_per_batch: int = Field(default=65536, ge=8, le=1 << 30, description="Tokens per step, over all processes.")
    tokens_per_micro_batch: int = Field(
        default=0, ge=0, le=1 << 30, description="Tokens per forward pass; 0: the whole batch at once."
    )
    shuffle_shards: int = Field(
        default=0,
        ge=0,
        le=1 << 20,
        description="Shards of the corpus whose rows are mixed at a time; 0: all. See docs/corpus.md.",
    )
    position_shift_probability: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Probability that a BERT row starts at a random position, so that all positions are trained.",
    )


class ObjectiveSection(SettingsSection):
    mlm_probability: float = Field(default=0.15, gt=0, lt=1, description="Share of tokens to predict.")
    mean_noise_span_length: float = Field(
        default=3.0, ge=1, le=100, description="T5: mean length of the dropped spans, in tokens."
    )
    replacement_probabilities: Annotated[tuple[Probability, Probability, Probability], LAX] = Field(
        default=(0.8, 0.1, 0.1),
        description="Probabilities that a chosen token is masked, replaced at random, or kept.",
    )
    whole_word_mask: bool = Field(default=False, description="Mask all pieces of a word together.")
    sentence_pairs: Literal["next", "order", "none"] = Field(
        default="next", description="next: does B follow A? order: are they swapped? none: single texts."
    )
    short_seq_prob: float = Field(
        default=0.1, ge=0, le=1, description="Probability of a pair that is shorter than a row."
    )

    @field_validator("replacement_probabilities")
    @classmethod
    def _sums_to_one(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
        if not math.isclose(sum(value), 1, abs_tol=1e-6):
            raise ValueError(f"expected three probabilities whose sum is 1, and their sum is {sum(value):g}")
        return value


class OptimizerSection(SettingsSection):
    name: Optimizer = "adamw"
    learning_rate: LearningRate = 1e-3
    weight_decay: WeightDecay = 0.01
    adam_betas: AdamBetas = (0.9, 0.98)
    adam_epsilon: AdamEpsilon = 1e-6
    max_grad_norm: MaxGradNorm = 1.0


class ScheduleSection(SettingsSection):
    max_steps: MaxSteps = 0
    budget: Budget = ""
    warmup_ratio: WarmupRatio = 0.05
    lr_scheduler_type: Scheduler = "linear"
    min_lr_ratio: MinLrRatio = 0.0
    early_stopping_patience: Patience = 0
    select: Select = "last"
    average_epochs: AverageEpochs = 1


class PretrainingRunSection(RunSection):
    seed: int = Field(default=0, ge=0, lt=1 << 63, description="Seed of initial weights, data order and masks.")
    checkpoint_every: IntervalSetting = Field(
        default="5min", description='"5min" or "500 steps"; empty: at the end only.'
    )
    evaluate_every: IntervalSetting = Field(
        default="5min", description='"5min" or "500 steps"; empty: at the end only.'
    )


class PretrainingConfig(SettingsFile):
    """All settings of a run."""

    example: ClassVar[str] = "optimizer.learning_rate=2e-3"
    changeable: ClassVar[frozenset[str]] = CHANGEABLE_SETTINGS

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
        family: str,
        overrides: Sequence[str] = (),
    ) -> PretrainingConfig:
        """Load settings with the defaults of a family."""

        recipe = get_recipe(family)

        def check(document: SettingsTables, origins: Mapping[str, str]) -> None:
            """Refuse settings of other families, which would have no effect."""
            if (named := document["model"].setdefault("family", family)) != family:
                raise InputError(f"{origins['model.family']}: model.family is {named!r}, and this trains a {family!r}")
            for key, origin in origins.items():
                if recipe.objective in FIXED_OBJECTIVES and key.startswith("objective."):
                    why = f"{describe_family(family)} {FIXED_OBJECTIVES[recipe.objective]}"
                    raise InputError(f"{origin}: {key} is for BERT; {why}, so remove it")
                section, name = key.split(".")
                value = document[section][name]
                value = tuple(value) if isinstance(value, list) else value
                default = recipe.defaults.get(section, {}).get(name, getattr(getattr(cls(), section), name, None))
                # Saved configurations contain all settings, so defaults are accepted.
                if key in recipe.unused and value != default:
                    raise InputError(f"{origin}: {key} has no effect for {describe_family(family)}; remove it")

        return cls.load(path, overrides=overrides, defaults=recipe.defaults, check=check)

    def saved_in(self, path: Path) -> PretrainingConfig:
        return self.read(path, family=self.model.family)

    @property
    def recipe(self) -> PretrainingRecipe:
        return get_recipe(self.model.family)

    def training(self, *, accumulation: int = 1) -> TrainingSection:
        """The settings of [optimizer] and [schedule] as a trainer reads them."""
        optimizer = self.optimizer.model_dump(exclude={"name"})
        return TrainingSection(
            optimizer=self.optimizer.name,
            gradient_accumulation_steps=accumulation,
            **optimizer,
            **self.schedule.model_dump(),
        )

    def sections(self) -> list[str]:
        fixed = self.recipe.objective in FIXED_OBJECTIVES
        return [name for name in super().sections() if not (name == "objective" and fixed)]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        model, data, vocabulary = self.model, self.data, self.vocabulary
        if model.hidden_size % model.num_attention_heads:
            raise ValueError(
                f"model.num_attention_heads is {model.num_attention_heads}, which does not divide model.hidden_size, "
                f"{model.hidden_size}"
            )
        if data.max_length > model.max_position_embeddings:
            raise ValueError(
                f"data.max_length is {data.max_length}, and the model reads {model.max_position_embeddings} tokens; "
                "use a smaller data.max_length or a larger model.max_position_embeddings"
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
        title = describe_family(model.family)
        unfit = UNFIT_TOKENIZERS.get(self.recipe.objective)
        if unfit and vocabulary.kind == unfit[0] and not vocabulary.path:
            raise ValueError(f"vocabulary.kind is {unfit[0]!r}, which has no {unfit[1]} for {title}; use {unfit[2]!r}")
        recurrent = pretrainable_families()[model.family].can("recurrent")
        if recurrent and model.intermediate_size < model.hidden_size:
            raise ValueError(
                f"model.intermediate_size is {model.intermediate_size}: {title}'s LSTMs have at least as many cells as "
                f"model.hidden_size, {model.hidden_size}"
            )
        return self
