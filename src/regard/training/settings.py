"""Settings that all kinds of training share, and the former names of settings in saved run folders."""

from __future__ import annotations

from pydantic import Field

from regard.settings import Precision, SettingsSection
from regard.training.schedule import IntervalSetting


class RunSection(SettingsSection):
    seed: int = Field(default=0, ge=0, lt=1 << 62, description="Seed of initial weights, data order and dropout.")
    precision: Precision = Field(default="auto", description="auto: bf16 on a GPU that supports it, otherwise fp32.")
    checkpoint_every: IntervalSetting = Field(
        default="2min", description='"2min" or "500 steps"; empty: after each epoch only.'
    )


# "section.old_key": "new_key"

RENAMED_SETTINGS = {
    "model.width": "hidden_size",
    "model.depth": "num_hidden_layers",
    "model.heads": "num_attention_heads",
    "model.ffn": "intermediate_size",
    "model.positions": "max_position_embeddings",
    "model.kind": "family",
    "model.embedding": "embedding_size",
    "vocabulary.size": "vocab_size",
    "vocabulary.minimum": "min_frequency",
    "data.length": "max_length",
    "data.batch": "tokens_per_batch",
    "data.micro": "tokens_per_micro_batch",
    "data.shifted": "position_shift_probability",
    "objective.mask_rate": "mlm_probability",
    "objective.span": "mean_noise_span_length",
    "objective.replace": "replacement_probabilities",
    "objective.whole_words": "whole_word_mask",
    "objective.pairs": "sentence_pairs",
    "objective.short_pairs": "short_seq_prob",
    "optimizer.rate": "learning_rate",
    "optimizer.betas": "adam_betas",
    "optimizer.eps": "adam_epsilon",
    "optimizer.clip": "max_grad_norm",
    "schedule.steps": "max_steps",
    "schedule.warmup": "warmup_ratio",
    "schedule.shape": "lr_scheduler_type",
    "schedule.floor": "min_lr_ratio",
    "run.keep": "save_total_limit",
    "run.seeds": "num_seeds",
    "training.epochs": "num_epochs",
    "training.batch": "batch_size",
    "training.tokens": "tokens_per_batch",
    "training.rate": "learning_rate",
    "training.warmup": "warmup_ratio",
    "training.clip": "max_grad_norm",
    "training.adversarial": "adversarial_epsilon",
    "training.length": "max_length",
    "training.layer_decay": "layerwise_lr_decay",
    "training.patience": "early_stopping_patience",
    "training.shape": "lr_scheduler_type",
    "training.smoothing": "label_smoothing",
    "training.consistency": "rdrop_weight",
    "training.beam": "num_beams",
    "training.average": "average_epochs",
    "vision.width": "hidden_size",
    "vision.depth": "num_hidden_layers",
    "vision.heads": "num_attention_heads",
    "vision.ffn": "intermediate_size",
    "vision.patch": "patch_size",
    "vision.shift": "max_shift",
}
