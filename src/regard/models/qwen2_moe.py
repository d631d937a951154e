"""Qwen2-MoE: a Qwen2 with mixtures of experts, one of which every token uses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import qwen2
from regard.models.family import Checkpoint
from regard.nn.experts import ExpertsConfig


@dataclass(frozen=True)
class Qwen2MoeConfig(ExpertsConfig, qwen2.Qwen2Config):
    """Qwen1.5-MoE-A2.7B by default."""

    family: str = "qwen2-moe"
    vocab_size: int = 151936
    hidden_size: int = 2048
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 16
    intermediate_size: int = 5632
    num_experts: int = 60
    num_experts_per_tok: int = 4
    norm_topk_prob: bool = False
    moe_intermediate_size: int | None = 1408
    shared_expert_intermediate_size: int | None = 5632


FAMILY = replace(
    qwen2.FAMILY,
    name="qwen2-moe",
    title="a Qwen2-MoE",
    description="Qwen2 with mixtures of experts and a shared expert",
    config_class=Qwen2MoeConfig,
    checkpoints=(Checkpoint("Qwen/Qwen1.5-MoE-A2.7B-Chat", 14_315_784_192, {}, ("output",)),),
)
