"""SmolLM3: a Llama whose every fourth layer does without positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from regard.errors import InputError
from regard.models import llama
from regard.models.family import Checkpoint


@dataclass(frozen=True)
class SmolLM3Config(llama.LlamaConfig):
    """SmolLM3 3B by default. `no_rope_layers` has a 0 for each layer without positions, a 1 for the others.

    None: every fourth layer has none.
    """

    family: str = "smollm3"
    vocab_size: int = 128256
    hidden_size: int = 2048
    num_hidden_layers: int = 36
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 4
    max_position_embeddings: int = 32768
    tie_word_embeddings: bool = True
    rope_theta: float = 2000000.0
    no_rope_layers: tuple[int, ...] | None = None

    def blocks(self) -> list[Any]:
        blocks = super().blocks()
        kinds = self.no_rope_layers or tuple(int(number % 4 != 3) for number in range(len(blocks)))
        if len(kinds) != len(blocks) or not set(kinds) <= {0, 1}:
            raise InputError(f"no_rope_layers is {str(kinds)[:60]}; expected 0 or 1 for each of {len(blocks)} layers")
        for block, has_positions in zip(blocks, kinds, strict=True):
            if not has_positions:
                block.attention.positions = None
        return blocks


FAMILY = replace(
    llama.FAMILY,
    name="smollm3",
    title="a SmolLM3",
    year=2025,
    description="Llama with layers without positions",
    config_class=SmolLM3Config,
    checkpoints=(
        Checkpoint(
            "HuggingFaceTB/SmolLM3-3B",
            3_075_098_624,
            {"rope_theta": 5000000.0, "max_position_embeddings": 65536},
            (),
        ),
    ),
)
