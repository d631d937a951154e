"""What can be set about a pretraining run: the sections, their fields, what each means and may be.

Knows numbers and words and which of them are possible alone. Reads no file; what fits together `config` checks.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, Strict, field_validator

from regard.settings import Precision, SettingsSection
from regard.training.schedule import Every, parse_budget

__all__ = [
    "DataSection",
    "Family",
    "ModelSection",
    "ObjectiveSection",
    "OptimizerSection",
    "PretrainingRunSection",
    "ScheduleSection",
    "VocabularySection",
]

Family = Literal["bert", "gpt", "t5", "elmo"]

Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
LONGEST = 1 << 16
LAX = Strict(False)  # TOML has lists where Python has tuples


class ModelSection(SettingsSection):
    family: Family = Field(default="bert", description="bert, gpt, t5 or elmo")
    hidden_size: int = Field(
        default=384, ge=1, le=LONGEST, description="numbers in a token's vector; ELMo: of each direction"
    )
    num_hidden_layers: int = Field(
        default=6, ge=1, le=1000, description="layers; T5: of the encoder, and as many of the decoder"
    )
    num_attention_heads: int = Field(
        default=6, ge=1, le=1000, description="attention heads of a layer; they divide the width"
    )
    intermediate_size: int = Field(
        default=1536, ge=1, le=1 << 18, description="width inside the feed-forward networks; ELMo: cells of an LSTM"
    )
    max_position_embeddings: int = Field(
        default=512, ge=1, le=LONGEST, description="the longest text the model can read, in tokens"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="share of numbers put to zero in training")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="the same for attention weights")
    activation: Literal["gelu", "gelu-tanh", "relu"] = Field(default="gelu", description="gelu, gelu-tanh or relu")


class VocabularySection(SettingsSection):
    path: str = Field(default="", description="a tokenizer's file or folder; empty: train one on the text")
    kind: Literal["wordpiece", "bpe"] = Field(default="wordpiece", description="of a new tokenizer: wordpiece or bpe")
    vocab_size: int = Field(default=16384, ge=1, le=1 << 24, description="entries of a new tokenizer")
    lowercase: bool = Field(default=True, description="whether a new tokenizer reads capitals as small letters")
    min_frequency: int = Field(
        default=2, ge=1, le=1 << 30, description="how often a piece of a new tokenizer occurs at least"
    )


class DataSection(SettingsSection):
    max_length: int = Field(default=128, ge=8, le=LONGEST, description="tokens of a row, special ones included")
    tokens_per_batch: int = Field(default=65536, ge=8, le=1 << 30, description="tokens of a step, over all processes")
    tokens_per_micro_batch: int = Field(
        default=0, ge=0, le=1 << 30, description="tokens of a forward pass; 0: the whole batch at once"
    )
    position_shift_probability: float = Field(
        default=0.0, ge=0, le=1, description="share of BERT's rows that begin at any position, so that all are learned"
    )


class ObjectiveSection(SettingsSection):
    mlm_probability: float = Field(default=0.15, gt=0, lt=1, description="share of tokens that the model has to tell")
    mean_noise_span_length: float = Field(
        default=3.0, ge=1, le=100, description="T5: how many tokens are dropped together, on average"
    )
    replacement_probabilities: Annotated[tuple[Share, Share, Share], LAX] = Field(
        default=(0.8, 0.1, 0.1), description="shares of those that are masked, replaced by a random token, kept"
    )
    whole_word_mask: bool = Field(default=False, description="whether all pieces of a word are hidden together")
    sentence_pairs: Literal["next", "order", "none"] = Field(
        default="next", description="next: does B follow A? order: are they swapped? none: single texts"
    )
    short_seq_prob: float = Field(default=0.1, ge=0, le=1, description="share of pairs that are shorter than a row")

    @field_validator("replacement_probabilities")
    @classmethod
    def _sums_to_one(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
        if not math.isclose(sum(value), 1, abs_tol=1e-6):
            raise ValueError(f"expected three shares whose sum is 1, and theirs is {sum(value):g}")
        return value


class OptimizerSection(SettingsSection):
    name: Literal["adamw", "muon"] = Field(default="adamw", description="adamw, or muon for the matrices inside layers")
    learning_rate: float = Field(default=1e-3, gt=0, le=10, description="the highest learning rate")
    weight_decay: float = Field(
        default=0.01, ge=0, le=10, description="how much of a matrix goes each step, times the rate"
    )
    adam_betas: Annotated[tuple[Beta, Beta], LAX] = Field(
        default=(0.9, 0.98), description="AdamW's memory of gradients and squares"
    )
    adam_epsilon: float = Field(default=1e-6, gt=0, le=1, description="AdamW's smallest divisor")
    max_grad_norm: float = Field(default=1.0, ge=0, description="the longest gradient; 0: any")


class ScheduleSection(SettingsSection):
    max_steps: int = Field(default=0, ge=0, le=1 << 40, description="the run's length in steps; 0: the budget says it")
    budget: str = Field(
        default="", description='the run\'s length in time, "20min" or "1h30m"; empty: the steps say it'
    )
    warmup_ratio: float = Field(default=0.05, ge=0, le=1, description="share of the run in which the rate rises")
    lr_scheduler_type: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="how it falls: linear, cosine or constant"
    )
    min_lr_ratio: float = Field(default=0.0, ge=0, le=1, description="share of the rate that is left at the end")

    @field_validator("budget")
    @classmethod
    def _is_duration(cls, value: str) -> str:
        if value:
            parse_budget(value)
        return value


class PretrainingRunSection(SettingsSection):
    seed: int = Field(default=0, ge=0, lt=1 << 63, description="of first weights, order and masks")
    precision: Precision = Field(default="auto", description="auto: bf16 on a GPU that has it, else fp32")
    compile: Literal["auto", "on", "off"] = Field(default="auto", description="auto: on a GPU")
    gradient_checkpointing: bool = Field(default=False, description="less memory for a third more work")
    checkpoint_every: Every = Field(default="5min", description='"5min" or "500 steps"; empty: at the end only')
    evaluate_every: Every = Field(default="5min", description='"5min" or "500 steps"; empty: at the end only')
    save_total_limit: int = Field(default=2, ge=1, le=1 << 20, description="how many of the latest checkpoints stay")
