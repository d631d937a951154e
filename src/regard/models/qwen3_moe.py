"""Qwen3-MoE: a Qwen3 with mixtures of experts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import qwen3
from regard.models.family import Checkpoint
from regard.nn.experts import ExpertsConfig


@dataclass(frozen=True)
class Qwen3MoeConfig(ExpertsConfig, qwen3.Qwen3Config):
    """Qwen3-30B-A3B by default."""

    family: str = "qwen3-moe"
    hidden_size: int = 2048
    num_hidden_layers: int = 48
    num_key_value_heads: int | None = 4
    intermediate_size: int = 6144
    num_experts: int = 128
    num_experts_per_tok: int = 8
    norm_topk_prob: bool = False
    moe_intermediate_size: int | None = 768


FAMILY = replace(
    qwen3.FAMILY,
    name="qwen3-moe",
    title="a Qwen3-MoE",
    description="Qwen3 with mixtures of experts",
    config_class=Qwen3MoeConfig,
    checkpoints=(Checkpoint("Qwen/Qwen3-30B-A3B", 30_532_122_624, {"norm_topk_prob": True}, ("output",)),),
)
