"""`Context`: the arguments of a Transformer layer besides its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.nn.masks import Layout


@dataclass(frozen=True, eq=False)
class Context:
    """The arguments that a model passes to its stack, its layers and their attention.

    `memory` is the input of cross-attention, with its own layout. `bias` (1, H, T, S) is added to the attention scores.
    `cache` holds the keys and values of earlier steps for the module that receives the context: a stack, a layer or an
    attention. `rows` (M,) are indices into the flat batch: only their outputs are computed. `start` is the number of
    tokens before this input, one for the batch or one per row (B, 1), for modules that encode positions.
    """

    layout: Layout
    memory: Tensor | None = None
    memory_layout: Layout | None = None
    bias: Tensor | None = None
    cache: Any = None
    rows: Tensor | None = None
    start: int | Tensor = 0

    @staticmethod
    def of(context: Context | Layout) -> Context:
        """Return a context; a layout alone gives a context without memory or cache."""
        return context if isinstance(context, Context) else Context(context)
