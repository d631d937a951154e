"""Shows the events of a training run in the terminal: a status line for progress, a line for everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from regard.cli.output import note, stages, status_line
from regard.events import Event, Progress


@contextmanager
def training_display(every: float) -> Iterator[Callable[[Event], None]]:
    """Yields the consumer of events. Without a terminal, progress is printed every `every` seconds."""
    from regard.training.events import LayersScheduled, TrainingEvent

    with ExitStack() as stack:
        show_status = stack.enter_context(status_line(every))
        progress_bar = stack.enter_context(ExitStack())
        show_progress: Callable[[str, int, int], None] | None = None
        layers: object = None  # the same for all seeds, so shown once

        def on_event(event: Event) -> None:
            nonlocal show_progress, layers
            if isinstance(event, Progress):
                if show_progress is None and event.done == event.total:
                    return  # finished at once
                show_progress = show_progress or stages(progress_bar, {event.stage: event.unit})
                show_progress(event.stage, event.done, event.total or 0)
                if event.done == event.total:
                    progress_bar.close()
                    show_progress = None
                return
            if isinstance(event, LayersScheduled):
                if event.layers == layers:
                    return
                layers = event.layers
            if line := event.line():
                if isinstance(event, TrainingEvent) and event.transient:
                    show_status(line)
                else:
                    for part in line.split("\n"):
                        note(part)

        yield on_event
