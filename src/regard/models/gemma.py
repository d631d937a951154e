"""Gemma: a Llama with scaled embeddings, GELU gates and RMS norms whose gain is 1 + weight.

Gemma 2 and Gemma 3 build on it; each has a module with its own declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from regard.models import llama
from regard.models.family import Checkpoint, shape


@dataclass(frozen=True)
class GemmaConfig(llama.LlamaConfig):
    """Gemma 7B by default."""

    family: str = "gemma"
    vocab_size: int = 256000
    hidden_size: int = 3072
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 16
    head_dim: int | None = 256
    intermediate_size: int = 24576
    max_position_embeddings: int = 8192
    hidden_act: str = "gelu-tanh"
    norm: Literal["rms", "offset-rms", "layer"] = "offset-rms"
    scale_embedding: bool = True
    tie_word_embeddings: bool = True


FAMILY = replace(
    llama.FAMILY,
    name="gemma",
    title="a Gemma",
    year=2024,
    description="Llama with scaled embeddings, GELU gates and offset RMS norms",
    config_class=GemmaConfig,
    checkpoints=(
        Checkpoint("google/gemma-2b", 2_506_172_416, shape(2048, 18, 8, 16384, num_key_value_heads=1), ()),
        Checkpoint("google/gemma-7b", 8_537_680_896, {}, ()),
    ),
)
