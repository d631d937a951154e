"""A training that goes on behind the page: started, watched and stopped, one at a time.

Knows `regard.fit`, its events and a thread that watches. Knows nothing of HTTP or of how progress is drawn; how a
process of its own does the work is in `training_process`.
"""

from __future__ import annotations

import contextlib
import random
import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.errors import InputError, RegardError
from regard.events import Note
from regard.server.training_process import run_in_process

if TYPE_CHECKING:
    from regard.data.readers import Read
    from regard.training.events import OnEvent
    from regard.training.finetuning.config import FineTuningConfig

__all__ = ["EPOCHS", "TrainingJob", "TrainingJobs", "TrainingRequest", "run_in_thread", "safe_file_name", "train"]

State = Literal["running", "done", "failed", "cancelled"]
EPOCHS = 20
KEPT = 20  # lines of what was said
PATIENCE = 20.0  # seconds that a training gets to stop


@dataclass(frozen=True)
class TrainingRequest:
    """What to train. `data` is a file's path; `limit` draws that many of its examples, 0 takes all.

    `select` is the epoch that is kept: best or last. `upload` says that the file was sent by the page: it is removed
    where no model comes of it.
    """

    task: str
    data: str
    model: str
    output: str
    epochs: int = 3
    limit: int = 0
    columns: str = ""
    select: Literal["best", "last"] = "best"
    upload: bool = False

    @property
    def settings(self) -> list[str]:
        """Where it wants other than the task's own settings, as `--set` takes them."""
        return [f"training.num_epochs={self.epochs}", *(["training.select=last"] if self.select == "last" else [])]

    @property
    def command(self) -> str:
        """The same on the command line, where no examples are drawn; else nothing says the same."""
        if self.limit:
            return ""
        columns = ["--columns", self.columns] if self.columns else []
        settings = [part for setting in self.settings for part in ("--set", setting)]
        parts = ["--train", self.data, *columns, "--model", self.model, *settings, "--output", self.output]
        return shlex.join(["regard", "train", self.task, *parts])


class TrainingCancelled(Exception):
    """The user has stopped it."""


@dataclass
class TrainingJob:
    """An order and how far it is. Times are in seconds."""

    order: TrainingRequest
    state: State = "running"
    error: str = ""
    step: int = 0
    steps: int = 0
    epoch: int = 0
    rate: float = 0.0
    left: float | None = None
    loss: float | None = None
    scores: dict[str, float] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    ended: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    interrupt: Callable[[], None] | None = None  # ends what is being done for the job

    def cancel(self) -> None:
        self.stop.set()
        if (interrupt := self.interrupt) is not None:
            interrupt()

    def on_cancel(self, interrupt: Callable[[], None] | None) -> None:
        """Have `cancel` call this too; at once where the user has stopped the job before."""
        self.interrupt = interrupt
        if interrupt is not None and self.stop.is_set():
            interrupt()

    def document(self) -> dict[str, object]:
        end = time.monotonic() if self.ended is None else self.ended
        return {
            "state": self.state,
            "error": self.error,
            "task": self.order.task,
            "data": self.order.data,
            "model": self.order.model,
            "output": self.order.output,
            "command": self.order.command,
            "step": self.step,
            "steps": self.steps,
            "epoch": self.epoch,
            "epochs": self.order.epochs,
            "rate": self.rate,
            "left": self.left,
            "loss": self.loss,
            "scores": dict(self.scores),
            "said": list(self.said),
            "seconds": round(end - self.begun, 1),
            "stopping": self.state == "running" and self.stop.is_set(),
        }

    def say(self, line: str) -> None:
        self.check()
        self.said = [*self.said, line][-KEPT:]

    def hear(self, event: Mapping[str, Any]) -> None:
        """An event of the run; raises where the user has stopped it."""
        self.check()
        match event["type"]:
            case "note":
                self.say(event["message"])
            case "step":
                self.step, self.steps, self.epoch = event["step"], event["steps"], event["epoch"]
                self.rate, self.loss = self.step / max(event["seconds"], 1e-9), event["loss"]
                self.left = event["seconds_left"]
            case "evaluation":
                self.scores = event["scores"]
                shown = ", ".join(f"{name} {value:.1f}" for name, value in self.scores.items())
                self.say(f"epoch {event['epoch']}: {shown}")

    def check(self) -> None:
        if self.stop.is_set():
            raise TrainingCancelled


Runner = Callable[[TrainingJob], Mapping[str, float]]


class TrainingJobs:
    """At most one job runs. `run` does what a job's order says and gives the scores; by default in a process of its
    own, so that it can be ended at any point."""

    def __init__(self, run: Runner | None = None) -> None:
        self._work = run_in_process if run is None else run
        self.job: TrainingJob | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def check(self, order: TrainingRequest) -> None:
        """InputError where it cannot be begun: one runs, or the folder holds a model."""
        if not 1 <= order.epochs <= EPOCHS:
            raise InputError(f"epochs is {order.epochs}; expected 1 to {EPOCHS}")
        if order.limit < 0:
            raise InputError(f"{order.limit} examples are too few; expected a number above 0, or none for all")
        try:
            named = Path(order.output) if order.output else None  # without a name a new one is found
            held = named is not None and any((named / name).exists() for name in ("config.json", "run.json"))
        except OSError as error:
            raise InputError(f"a folder cannot be called {order.output[:80]!r}: {error.strerror}") from None
        if held:
            raise InputError(f"{order.output} holds a model or a run; choose another name")
        if self.job is not None and self.job.state == "running":
            raise InputError(f"{self.job.order.output} is being trained; wait for it, or stop it first")

    def start(self, order: TrainingRequest, done: Callable[[str], None]) -> threading.Thread:
        """Begin, watched by a thread; `done` is called with the output of a job that has ended well."""
        with self._lock:
            self.check(order)
            job = self.job = TrainingJob(order)
        self._thread = threading.Thread(target=self._run, args=(job, done), name="regard-training", daemon=True)
        self._thread.start()
        return self._thread

    def cancel(self) -> None:
        """Stop the job, wherever it is."""
        if self.job is not None:
            self.job.cancel()

    def wait(self, seconds: float | None = None) -> None:
        """Until the job has ended, or so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def end(self) -> None:
        """Stop the job and wait for it: a thread that computes while the program ends would bring it down."""
        self.cancel()
        self.wait(PATIENCE)

    def _run(self, job: TrainingJob, done: Callable[[str], None]) -> None:
        folder = Path(job.order.output)
        fresh = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        try:
            job.scores = dict(self._work(job))
            job.check()
            done(job.order.output)
            job.state = "done"
        except TrainingCancelled:
            if fresh:  # what was begun is of no use, and would keep its name from the next try
                _remove(folder)
            job.state = "cancelled"
        except Exception as error:  # whatever goes wrong in a training, the studio goes on
            if fresh and not job.step and not (folder / "config.json").exists():  # nothing that one could go on with
                _remove(folder)
            job.error = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
            job.state = "failed"
        finally:
            if job.order.upload and job.state != "done":
                Path(job.order.data).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()  # of a try that came to nothing; one that holds something stays
            job.ended = time.monotonic()


def run_in_thread(job: TrainingJob) -> Mapping[str, float]:
    """Do what the job's order says in this thread. It can be stopped only where it tells something."""
    return train(job.order, on_event=lambda event: job.hear(event.model_dump()))


def train(order: TrainingRequest, *, on_event: OnEvent) -> dict[str, float]:
    """Do what the order says; gives the scores of the best epoch."""
    from regard.training.finetuning.data import TableOptions, holds_images, read_examples
    from regard.training.finetuning.run import fit

    table = TableOptions.parse(order.columns or None)
    Path(order.output).parent.mkdir(parents=True, exist_ok=True)
    read = read_examples(order.task, order.data, table=table, labelled=True)
    if 0 < order.limit < len(read.examples):
        on_event(Note(message=f"{order.limit:,} of {len(read.examples):,} examples were drawn"))
        read = drawn(read, order.limit)
    kind = "pictures" if order.task == "classify" and holds_images(order.data) else order.task
    report = fit(
        order.task,
        read,
        model=order.model,
        output=order.output,
        config=_config(kind, order.settings),
        on_event=on_event,
    )
    return dict(report.best.scores)


def drawn(read: Read[Any], count: int) -> Read[Any]:
    """So many of the examples in their order, always the same ones."""
    places = sorted(random.Random(0).sample(range(len(read.examples)), count))
    examples = [read.examples[place] for place in places]
    lines = [read.lines[place] for place in places] if read.lines else []
    return replace(read, examples=examples, lines=lines, how=f"{read.how}; {count:,} drawn")


def _remove(folder: Path) -> None:
    """Delete what the run has written, and nothing that someone else has put there."""
    from regard.files.output_folder import remove_output

    with contextlib.suppress(InputError):  # a manifest that Regard did not write: then nothing is known to be ours
        remove_output(folder)


def safe_file_name(given: str, *, otherwise: str) -> str:
    """What of a name is good for a file: letters, digits, dots, dashes."""
    cleaned = re.sub(r"[^\w.-]+", "-", Path(given).name).strip(".-")
    return cleaned[:80] or otherwise


def _config(kind: str, settings: list[str]) -> FineTuningConfig:
    from regard.training.finetuning.config import DEFAULTS, FineTuningConfig

    return FineTuningConfig.load(overrides=settings, defaults=DEFAULTS[kind])
