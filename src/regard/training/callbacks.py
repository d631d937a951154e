"""Functions that a caller of a training run gives: they see every event, and may end the training."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from regard.events import Event

Callback = Callable[[Event], object]


class Callbacks:
    """Calls each function with every event. One that returns True ends the training after the current epoch.

    The best epoch so far is kept, as with early stopping. An exception of a function ends the run at once.
    """

    def __init__(self, functions: Iterable[Callback] = ()) -> None:
        self.functions = tuple(functions)
        self.stop = False

    def on_event(self, event: Event) -> Event:
        for function in self.functions:
            returned = function(event)
            self.stop = self.stop or (isinstance(returned, bool | np.bool_) and bool(returned))
        return event
