"""Fine-tuning behind the page: started, watched and stopped, one job at a time.

Depends on neither HTTP nor the page; `training_process` runs a job in a process of its own.
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
from regard.events import Event, Note, drain
from regard.server.training_process import run_in_process

if TYPE_CHECKING:
    from regard.data.readers import ExampleSet

MAX_EPOCHS = 20
MAX_MESSAGES = 20
STOP_SECONDS = 20.0  # that a job may take to stop


@dataclass(frozen=True)
class TrainingRequest:
    """What to train. `data` is a file; `limit` samples that many of its examples, 0 takes all.

    `select` is the epoch to keep: best or last. `upload` means that the page sent the file: it is removed when the
    job gives no model.
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
        """Settings that differ from the task's defaults, in the form of `--set`."""
        return [f"training.num_epochs={self.epochs}", *(["training.select=last"] if self.select == "last" else [])]

    @property
    def command(self) -> str:
        """The equivalent command; empty when examples are sampled, which no option of the command does."""
        if self.limit:
            return ""
        columns = ["--columns", self.columns] if self.columns else []
        settings = [part for setting in self.settings for part in ("--set", setting)]
        parts = ["--train", self.data, *columns, "--model", self.model, *settings, "--output", self.output]
        return shlex.join(["regard", "train", self.task, *parts])


class TrainingCancelled(Exception):
    """The user has stopped the job."""


@dataclass
class TrainingJob:
    """A request and its progress. Times are in seconds."""

    request: TrainingRequest
    state: Literal["running", "done", "failed", "cancelled"] = "running"
    error: str = ""
    step: int = 0
    steps: int = 0
    epoch: int = 0
    steps_per_second: float = 0.0
    remaining: float | None = None
    loss: float | None = None
    scores: dict[str, float] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    interrupt: Callable[[], None] | None = None  # ends the work that is being done for the job

    def cancel(self) -> None:
        self.stop.set()
        if (interrupt := self.interrupt) is not None:
            interrupt()

    def on_cancel(self, interrupt: Callable[[], None] | None) -> None:
        """Have `cancel` call this too; call it now if the job is cancelled already."""
        self.interrupt = interrupt
        if interrupt is not None and self.stop.is_set():
            interrupt()

    def to_dict(self) -> dict[str, object]:
        end = time.monotonic() if self.ended is None else self.ended
        return {
            "state": self.state,
            "error": self.error,
            "task": self.request.task,
            "data": self.request.data,
            "model": self.request.model,
            "output": self.request.output,
            "command": self.request.command,
            "step": self.step,
            "steps": self.steps,
            "epoch": self.epoch,
            "epochs": self.request.epochs,
            "rate": self.steps_per_second,
            "left": self.remaining,
            "loss": self.loss,
            "scores": dict(self.scores),
            "said": list(self.messages),
            "seconds": round(end - self.started, 1),
            "stopping": self.state == "running" and self.stop.is_set(),
        }

    def on_message(self, line: str) -> None:
        self.check_cancelled()
        self.messages = [*self.messages, line][-MAX_MESSAGES:]

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Update the progress from an event of the run. Raises TrainingCancelled when the user has stopped it."""
        self.check_cancelled()
        match event["type"]:
            case "note":
                self.on_message(event["message"])
            case "step":
                self.step, self.steps, self.epoch = event["step"], event["steps"], event["epoch"]
                self.steps_per_second, self.loss = self.step / max(event["seconds"], 1e-9), event["loss"]
                self.remaining = event["seconds_left"]
            case "evaluation":
                self.scores = event["scores"]
                scores = ", ".join(f"{name} {value:.1f}" for name, value in self.scores.items())
                self.on_message(f"epoch {event['epoch']}: {scores}")

    def check_cancelled(self) -> None:
        if self.stop.is_set():
            raise TrainingCancelled


class TrainingJobs:
    """At most one job runs. `run` trains and returns the scores; by default in a process of its own, which can be
    stopped at any point."""

    def __init__(self, run: Callable[[TrainingJob], Mapping[str, float]] = run_in_process) -> None:
        self._train = run
        self.job: TrainingJob | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def check(self, request: TrainingRequest) -> None:
        """Raise InputError when the job cannot start: another one runs, or the folder holds a model."""
        if not 1 <= request.epochs <= MAX_EPOCHS:
            raise InputError(f"epochs is {request.epochs}; expected 1 to {MAX_EPOCHS}")
        if request.limit < 0:
            raise InputError(f"{request.limit} examples are too few; expected a number above 0, or none for all")
        try:
            folder = Path(request.output) if request.output else None  # without a name, a free one is chosen later
            taken = folder is not None and any((folder / name).exists() for name in ("config.json", "run.json"))
        except OSError as error:
            raise InputError(f"{request.output[:80]!r} cannot be the name of a folder: {error.strerror}") from None
        if taken:
            raise InputError(f"{request.output} holds a model or a run; choose another name")
        if self.job is not None and self.job.state == "running":
            raise InputError(f"{self.job.request.output} is being trained; wait for it, or stop it first")

    def start(self, request: TrainingRequest, on_done: Callable[[str], None]) -> threading.Thread:
        """Start a job, watched by a thread; `on_done` is called with the output folder of a successful job."""
        with self._lock:
            self.check(request)
            job = self.job = TrainingJob(request)
        self._thread = threading.Thread(target=self._run, args=(job, on_done), name="regard-training", daemon=True)
        self._thread.start()
        return self._thread

    def cancel(self) -> None:
        if self.job is not None:
            self.job.cancel()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the job has ended, or for at most `seconds`."""
        if self._thread is not None:
            self._thread.join(seconds)

    def close(self) -> None:
        """Stop the job and wait for it: a thread that computes while the interpreter shuts down would crash it."""
        self.cancel()
        self.wait(STOP_SECONDS)

    def _run(self, job: TrainingJob, on_done: Callable[[str], None]) -> None:
        folder = Path(job.request.output)
        was_empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        try:
            job.scores = dict(self._train(job))
            job.check_cancelled()
            on_done(job.request.output)
            job.state = "done"
        except TrainingCancelled:
            if was_empty:  # the incomplete output is of no use and would block its name
                _remove_output(folder)
            job.state = "cancelled"
        except Exception as error:  # a failed training must not end the studio
            if was_empty and not job.step and not (folder / "config.json").exists():  # nothing to resume from
                _remove_output(folder)
            job.error = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
            job.state = "failed"
        finally:
            if job.request.upload and job.state != "done":
                Path(job.request.data).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()  # removes only an empty folder
            job.ended = time.monotonic()


def run_in_thread(job: TrainingJob) -> Mapping[str, float]:
    """Train in this thread. The job can be stopped only when it sends an event or a message."""
    return train(job.request, on_event=lambda event: job.on_event(event.model_dump()))


def train(request: TrainingRequest, *, on_event: Callable[[Event], None]) -> dict[str, float]:
    """Train as requested and return the scores of the best epoch."""
    from regard.data.readers import TableOptions
    from regard.tasks.registry import read_examples, task_for
    from regard.training.finetuning.config import FineTuningConfig
    from regard.training.finetuning.run import fine_tune

    table = TableOptions.parse(request.columns or None)
    Path(request.output).parent.mkdir(parents=True, exist_ok=True)
    read = read_examples(request.task, request.data, table=table, labeled=True)
    if 0 < request.limit < len(read.examples):
        on_event(Note(message=f"{request.limit:,} of {len(read.examples):,} examples were sampled"))
        read = sample_examples(read, request.limit)
    defaults = {"training": task_for(request.task, request.data).training_defaults}
    config = FineTuningConfig.load(overrides=request.settings, defaults=defaults)
    events = fine_tune(request.task, read, model=request.model, output=request.output, config=config)
    return dict(drain(events, on_event).best.scores)


def sample_examples(read: ExampleSet[Any], count: int) -> ExampleSet[Any]:
    """Sample examples in their order, always the same ones."""
    indices = sorted(random.Random(0).sample(range(len(read.examples)), count))
    examples = [read.examples[index] for index in indices]
    lines = [read.lines[index] for index in indices] if read.lines else []
    return replace(read, examples=examples, lines=lines, description=f"{read.description}; {count:,} sampled")


def _remove_output(folder: Path) -> None:
    """Delete what the run has written, and no other files."""
    from regard.files.output_folder import remove_output

    with contextlib.suppress(InputError):  # a manifest that Regard did not write: then no file is known to be ours
        remove_output(folder)


def safe_file_name(name: str, *, default: str) -> str:
    """Keep letters, digits, dots and dashes of a file name."""
    cleaned = re.sub(r"[^\w.-]+", "-", Path(name).name).strip(".-")
    return cleaned[:80] or default
