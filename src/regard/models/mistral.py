"""Mistral: a Llama whose layers may attend to a sliding window."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import llama
from regard.models.family import Checkpoint


@dataclass(frozen=True)
class MistralConfig(llama.LlamaConfig):
    """Mistral 7B v0.3 by default."""

    family: str = "mistral"
    vocab_size: int = 32768
    num_key_value_heads: int | None = 8
    intermediate_size: int = 14336
    max_position_embeddings: int = 32768
    layer_norm_eps: float = 1e-5
    rope_theta: float = 1000000.0


V1 = {"vocab_size": 32000, "rope_theta": 10000.0, "sliding_window": 4096}

FAMILY = replace(
    llama.FAMILY,
    name="mistral",
    title="a Mistral",
    description="Llama with a sliding window",
    config_class=MistralConfig,
    checkpoints=(
        Checkpoint("mistralai/Mistral-7B-v0.1", 7_241_732_096, V1, ("output",)),
        Checkpoint("mistralai/Mistral-7B-Instruct-v0.3", 7_248_023_552, {}, ("output",)),
    ),
)
