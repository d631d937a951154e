"""Events of a running verb: notes, progress and generated text. Long jobs add their own event types."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from regard.cancellation import check_cancelled

E = TypeVar("E")
F = TypeVar("F")
R = TypeVar("R")


class Event(BaseModel):
    """Something that happened while a verb was running. `type` names the subclass in JSON."""

    model_config = ConfigDict(frozen=True)
    transient: ClassVar[bool] = False  # on a terminal, the next event of this kind replaces it
    once: ClassVar[bool] = False  # the same line is not repeated

    type: str

    def line(self) -> str | None:
        """One line for a terminal or a log; None if the event is not worth a line of its own."""
        return None


class Note(Event):
    """A message for the user that is not part of the result."""

    type: Literal["note"] = "note"
    message: str

    def line(self) -> str:
        return self.message


class Progress(Event):
    """How much of a stage is done; a new `stage` ends the previous one."""

    type: Literal["progress"] = "progress"
    stage: str
    done: int
    total: int | None = None
    unit: str = "texts"


class TextPiece(Event):
    """Text as it is generated."""

    type: Literal["text"] = "text"
    text: str


class ResultItem(TextPiece):
    """An item of the result's list as soon as it is known; `text` is its line. Whoever prints the lines need not keep
    the items."""

    type: Literal["item"] = "item"  # type: ignore[assignment]
    item: Any


def drain(events: Generator[E, None, R], on_event: Callable[[E], object] | None = None) -> R:
    """Exhaust a generator of events and return its result. If `on_event` raises, the generator is closed first."""
    mapped = map_events(events, on_event or (lambda event: event))
    while True:
        try:
            next(mapped)
        except StopIteration as end:
            result: R = end.value
            return result


def map_events(events: Generator[E, None, R], function: Callable[[E], F]) -> Generator[F, None, R]:
    """Yield `function(event)` for each event and return the result of the generator, which is closed at the end. Each
    event is a check whether the computation is cancelled."""
    with closing(events):
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                result: R = end.value
                return result
            check_cancelled()
            yield function(event)
