"""What a Transformer layer needs besides its input: how the batch lies, and what there is to attend to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.nn.masks import Layout

__all__ = ["Context"]


@dataclass(frozen=True, eq=False)
class Context:
    """The arguments that travel together through a model, its stack, its layers and their attention.

    `memory` is what cross-attention reads, with its own layout. `bias` (1, H, T, S) is added to the attention scores.
    `cache` holds the keys and values of earlier steps: that of the whole stack, of one layer or of one attention,
    whichever receives the context. `rows` (M,) selects positions of the flat batch: only their results are computed.
    `start` counts the tokens before this input, per batch or per row (B, 1), for modules that encode positions.
    """

    layout: Layout
    memory: Tensor | None = None
    memory_layout: Layout | None = None
    bias: Tensor | None = None
    cache: Any = None
    rows: Tensor | None = None
    start: int | Tensor = 0

    @staticmethod
    def of(given: Context | Layout) -> Context:
        """A context; a layout alone is a context without memory or cache."""
        return given if isinstance(given, Context) else Context(given)
