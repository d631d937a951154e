"""Phi-3 and Phi-4: a Llama whose files store queries, keys and values, and gate and input, as one matrix each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import llama
from regard.models.family import Checkpoint


@dataclass(frozen=True)
class Phi3Config(llama.LlamaConfig):
    """Phi-3 mini 4k by default."""

    family: str = "phi3"
    vocab_size: int = 32064
    hidden_size: int = 3072
    intermediate_size: int = 8192
    max_position_embeddings: int = 4096
    layer_norm_eps: float = 1e-5


FAMILY = replace(
    llama.FAMILY,
    name="phi3",
    title="a Phi-3",
    year=2024,
    description="Llama with fused matrices in its files; also Phi-4",
    config_class=Phi3Config,
    checkpoints=(Checkpoint("microsoft/Phi-3-mini-4k-instruct", 3_821_079_552, {"sliding_window": 2047}, ("output",)),),
)
