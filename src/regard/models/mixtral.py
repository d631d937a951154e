"""Mixtral: a Mistral whose feed-forward networks are mixtures of experts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import mistral
from regard.models.family import Checkpoint
from regard.nn.experts import ExpertsConfig


@dataclass(frozen=True)
class MixtralConfig(ExpertsConfig, mistral.MistralConfig):
    """Mixtral 8x7B by default."""

    family: str = "mixtral"
    vocab_size: int = 32000


FAMILY = replace(
    mistral.FAMILY,
    name="mixtral",
    title="a Mixtral",
    description="Mistral with mixtures of experts",
    config_class=MixtralConfig,
    checkpoints=(Checkpoint("mistralai/Mixtral-8x7B-Instruct-v0.1", 46_702_792_704, {}, ("output",)),),
)
