"""Settings of the kinds of training that are not recipes yet."""

from __future__ import annotations

from pydantic import Field

from regard.settings import Precision, SettingsSection
from regard.training.settings import IntervalSetting, Parallel


class OldRunSection(SettingsSection):
    seed: int = Field(default=0, ge=0, lt=1 << 62, description="Seed of initial weights, data order and dropout.")
    precision: Precision = Field(default="auto", description="auto: bf16 on a GPU that supports it, otherwise fp32.")
    checkpoint_every: IntervalSetting = Field(
        default="2min", description='"2min" or "500 steps"; empty: after each epoch only.'
    )


class ParallelRunSection(OldRunSection):
    """Of training that several processes can share."""

    parallel: Parallel = Field(
        default="auto",
        description="Several processes: ddp, each has the model; fsdp, each has a part of it; auto: fsdp if needed.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute activations: less memory for about a third more time."
    )
