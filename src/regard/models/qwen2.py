"""Qwen2 and Qwen2.5: a Llama with biases of queries, keys and values; its last layers may have a sliding window."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import llama
from regard.models.family import Checkpoint, shape


@dataclass(frozen=True)
class Qwen2Config(llama.LlamaConfig):
    """Qwen2.5 7B by default."""

    family: str = "qwen2"
    vocab_size: int = 152064
    hidden_size: int = 3584
    num_hidden_layers: int = 28
    num_attention_heads: int = 28
    num_key_value_heads: int | None = 4
    intermediate_size: int = 18944
    max_position_embeddings: int = 32768
    qkv_bias: bool = True
    rope_theta: float = 1000000.0


TIED = {"vocab_size": 151936, "tie_word_embeddings": True, "num_key_value_heads": 2}

FAMILY = replace(
    llama.FAMILY,
    name="qwen2",
    title="a Qwen2",
    year=2024,
    description="Llama with biases of queries, keys and values; also Qwen2.5",
    config_class=Qwen2Config,
    checkpoints=(
        Checkpoint("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768, shape(896, 24, 14, 4864, **TIED), ()),
        Checkpoint("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, shape(1536, 28, 12, 8960, **TIED), ()),
        Checkpoint("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, {}, ("output",)),
    ),
)
