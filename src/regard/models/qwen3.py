"""Qwen3: a Llama that normalizes each head of the queries and keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import llama
from regard.models.family import Checkpoint, shape


@dataclass(frozen=True)
class Qwen3Config(llama.LlamaConfig):
    """Qwen3 8B by default."""

    family: str = "qwen3"
    vocab_size: int = 151936
    num_hidden_layers: int = 36
    num_key_value_heads: int | None = 8
    head_dim: int | None = 128
    intermediate_size: int = 12288
    max_position_embeddings: int = 40960
    query_key_norm: bool = True
    rope_theta: float = 1000000.0


TIED = {"tie_word_embeddings": True}

FAMILY = replace(
    llama.FAMILY,
    name="qwen3",
    title="a Qwen3",
    year=2025,
    description="Llama with norms of queries and keys",
    config_class=Qwen3Config,
    checkpoints=(
        Checkpoint("Qwen/Qwen3-0.6B", 596_049_920, shape(1024, 28, 16, 3072, **TIED), ()),
        Checkpoint("Qwen/Qwen3-1.7B", 1_720_574_976, shape(2048, 28, 16, 6144, **TIED), ()),
        Checkpoint("Qwen/Qwen3-8B", 8_190_735_360, {}, ("output",)),
    ),
)
