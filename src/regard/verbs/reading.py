"""Models of one job that count the texts they cannot read: unknown tokens, and another language than theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard.checkpoints.models import Models

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel
    from regard.text.reading import ReadingCount


class CountingModels:
    """The models of a verb; `warnings` tells what they could not read."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._counts: dict[str, tuple[ReadingCount, str]] = {}  # and what to use instead

    @contextmanager
    def use(
        self, name: str, check: Callable[[str], object] | None = None, *, precision: str = "fp32"
    ) -> Iterator[LoadedModel]:
        from regard.inference.reading import alternative, reading_count

        with self._models.use(name, check, precision=precision) as loaded:
            if name not in self._counts:  # translators test the language of texts themselves
                folder = None if loaded.translator is not None else loaded.folder
                self._counts[name] = reading_count(folder), alternative(loaded)
            yield loaded.counting(self._counts[name][0])

    def warnings(self) -> list[str]:
        notes = ((count.note(name), other) for name, (count, other) in self._counts.items())
        return [f"{note}.{other}" for note, other in notes if note is not None]

    @property
    def num_cut(self) -> int:
        return sum(count.cut for count, _ in self._counts.values())
