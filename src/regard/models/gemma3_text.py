"""Gemma 3 without images: a Gemma 2 that normalizes queries and keys instead of capping their scores.

Its local layers have rotary frequencies of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.models import gemma2
from regard.models.family import Checkpoint, shape
from regard.nn.block import Block
from regard.nn.rotary import Rotary


@dataclass(frozen=True)
class Gemma3TextConfig(gemma2.Gemma2Config):
    """Gemma 3 1B by default. The fields `rope_...` are those of global layers, except `rope_local_base_freq`."""

    family: str = "gemma3-text"
    vocab_size: int = 262144
    hidden_size: int = 1152
    num_attention_heads: int = 4
    num_key_value_heads: int | None = 1
    intermediate_size: int = 6912
    max_position_embeddings: int = 32768
    query_key_norm: bool = True
    sliding_window: int | None = 512
    sliding_window_pattern: int = 6
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    rope_theta: float = 1000000.0
    rope_local_base_freq: float = 10000.0

    def blocks(self) -> list[Block]:
        """Return new layers; the local ones have rotary positions of their own."""
        blocks, local = super().blocks(), Rotary(self.head_width, theta=self.rope_local_base_freq)
        for number, block in enumerate(blocks):
            if not self.is_global(number):
                block.attention.positions = local
        return blocks


FAMILY = replace(
    gemma2.FAMILY,
    name="gemma3-text",
    title="a Gemma 3",
    year=2025,
    description="Gemma 2 with norms of queries and keys in place of capped scores; text only",
    config_class=Gemma3TextConfig,
    checkpoints=(
        Checkpoint("google/gemma-3-270m-it", 268_098_176, shape(640, 18, 4, 2048), ()),
        Checkpoint("google/gemma-3-1b-it", 999_885_952, {}, ()),
    ),
)
