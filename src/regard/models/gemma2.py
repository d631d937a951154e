"""Gemma 2: a Gemma with norms before and after each branch, alternating local and global layers, and softcapping."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import sqrt

from torch import Tensor

from regard.errors import InputError
from regard.models import gemma, llama
from regard.models.family import Checkpoint, shape
from regard.nn.attention import softcap
from regard.nn.block import LayerConfig


@dataclass(frozen=True)
class Gemma2Config(gemma.GemmaConfig):
    """Gemma 2 2B by default. Scores are divided by sqrt(query_pre_attn_scalar).

    Every `sliding_window_pattern`-th layer attends to the whole text, the others to the last `sliding_window` tokens.
    """

    family: str = "gemma2"
    hidden_size: int = 2304
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int | None = 4
    intermediate_size: int = 9216
    query_pre_attn_scalar: int = 256
    sliding_window: int | None = 4096
    sliding_window_pattern: int = 2
    attn_logit_softcapping: float | None = 50.0
    final_logit_softcapping: float | None = 30.0

    def is_global(self, layer: int) -> bool:
        """Whether a layer, counted from 0, attends to the whole text."""
        return (layer + 1) % self.sliding_window_pattern == 0

    def layer(self, number: int) -> LayerConfig:
        layer = super().layer(number)
        return replace(
            layer,
            post_norm=True,
            scale=1 / sqrt(self.query_pre_attn_scalar),
            softcap=self.attn_logit_softcapping,
            window=None if self.is_global(number) else layer.window,
        )


class Gemma2(llama.Llama):
    """A Gemma whose logits are limited to +-final_logit_softcapping."""

    config: Gemma2Config

    def __init__(self, config: Gemma2Config, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__(config, output_heads=output_heads)
        cap = config.final_logit_softcapping
        if cap is not None and cap <= 0:
            raise InputError(f"final_logit_softcapping is {cap}; it must be above 0")

    def logits(self, hidden: Tensor) -> Tensor:
        logits, cap = super().logits(hidden), self.config.final_logit_softcapping
        return logits if cap is None else softcap(logits, cap)


FAMILY = replace(
    gemma.FAMILY,
    name="gemma2",
    title="a Gemma 2",
    description="Gemma with local and global layers, norms after each branch and softcapping",
    model_class=Gemma2,
    config_class=Gemma2Config,
    checkpoints=(
        Checkpoint("google/gemma-2-2b-it", 2_614_341_888, {}, ()),
        Checkpoint("google/gemma-2-9b-it", 9_241_705_984, shape(3584, 42, 16, 14336, num_key_value_heads=8), ()),
    ),
)
