"""Models of one job that count the texts they cannot read: unknown tokens, and another language than theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard.checkpoints.models import Models

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel
    from regard.checkpoints.reading import CountedModel


class CountingModels:
    """The models of a verb; `warnings` tells what they could not read."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._counted: dict[str, CountedModel] = {}

    @contextmanager
    def use(
        self, name: str, check: Callable[[str], object] | None = None, *, precision: str = "fp32"
    ) -> Iterator[LoadedModel]:
        from regard.checkpoints.reading import CountedModel

        with self._models.use(name, check, precision=precision) as loaded:
            if name not in self._counted:
                self._counted[name] = CountedModel(loaded)
            yield loaded.counting(self._counted[name].count)

    def warnings(self) -> list[str]:
        return [warning for name, counted in self._counted.items() for warning in counted.warnings(name)]

    def cut_notes(self) -> list[str]:
        """Say how many texts each model has cut."""
        return [counted.count.cut_note() for counted in self._counted.values() if counted.count.cut]
