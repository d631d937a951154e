"""`Models`: where verbs and chapters get their models from. Imports no torch, so that listing them is quick."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from regard.checkpoints.loaded_model import LoadedModel


class Models(Protocol):
    """Where a verb or a chapter gets its models from: loaded on demand, or kept by a server."""

    def use(
        self, name: str, check: Callable[[str], object] | None = None, *, precision: str = "fp32"
    ) -> AbstractContextManager[LoadedModel]:
        """The model with its tokenizer, for one user at a time. `check` raises an error for a name that a verb cannot
        use; it is called before a model is read from the disk. `precision` int8 gives a decoder with 8-bit weights."""
