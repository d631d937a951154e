"""The events of a run as scalars for TensorBoard, beside the event log.

train/loss, train/learning_rate, train/grad_norm, and train/tokens_per_second or train/steps_per_second are written
about once a second; dev/NAME is each score of an evaluation. Where several seeds are trained, each has a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.events import Event
from regard.training.events import Evaluated, Finished, Resumed, StepFinished, TrainingEvent

INSTALL = "pip install 'regard[tensorboard]'"


class TensorBoardLog:
    """Writes scalars to `folder`. A resumed run replaces what was written after the step that it resumes from."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(f"--tensorboard needs TensorBoard, which is not installed: {INSTALL}") from None
        self.folder, self._writer_class = Path(folder), SummaryWriter
        self._writers: dict[int | None, Any] = {}
        self._steps: dict[int | None, int] = {}  # the last step of each seed
        self._resumed: dict[int | None, int] = {}  # the step that a seed resumed after
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--tensorboard {folder}: cannot be written: {error.strerror}; choose another") from None

    def add(self, event: Event) -> None:
        if not isinstance(event, TrainingEvent):
            return
        seed = event.seed
        if isinstance(event, Resumed):
            self._steps[seed] = self._resumed[seed] = event.step
        elif isinstance(event, StepFinished):
            self._steps[seed] = event.step
            values = {"loss": event.loss, "learning_rate": event.learning_rate, "grad_norm": event.grad_norm}
            values |= {f"loss/{name}": loss for name, loss in event.losses.items()}
            if event.tokens_per_second is not None:
                values["tokens_per_second"] = event.tokens_per_second
            elif event.seconds > 0:
                values["steps_per_second"] = event.step / event.seconds
            self._write(seed, {f"train/{name}": value for name, value in values.items()}, event.step)
        elif isinstance(event, Evaluated):
            step = event.step if event.step is not None else self._steps.get(seed, 0)
            self._write(seed, dict(_scalars("dev", event.scores)), step)
        elif isinstance(event, Finished) and event.steps is not None:  # pretraining, which is evaluated at the end
            self._write(seed, dict(_scalars("dev", event.scores)), event.steps)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _write(self, seed: int | None, values: Mapping[str, float | None], step: int) -> None:
        if seed not in self._writers:
            folder = self.folder if seed is None else self.folder / f"seed-{seed}"
            # TensorBoard drops what an earlier process wrote from this step on.
            first = self._resumed[seed] + 1 if seed in self._resumed else 0
            self._writers[seed] = self._writer_class(str(folder), purge_step=first)
        for name, value in values.items():
            if value is not None:
                self._writers[seed].add_scalar(name, value, step)
        self._writers[seed].flush()


def _scalars(prefix: str, scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in scores.items():
        if isinstance(value, Mapping):
            yield from _scalars(f"{prefix}/{name}", value)
        elif isinstance(value, int | float):
            yield f"{prefix}/{name}", float(value)
