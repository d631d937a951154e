"""Fine-tuning from the page: started, watched and stopped, one job at a time, each in a process of its own.

    python -m regard.server.studio.training

runs the verb `train`, which can be stopped at any point and frees its memory at the end. It is a `WorkerProcess`: it
receives the request, sends a document for each event and finally the scores or a failure, and ends when the studio has
closed its side.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from regard.cancellation import Cancelled
from regard.errors import InputError, RegardError, check_choice
from regard.events import Event, drain
from regard.files.disk import atomic_write
from regard.files.durable_folder import remove_output
from regard.known import DEFAULT_MODEL, builtin_names
from regard.training.events import describe_scores
from regard.verbs.base import validated
from regard.verbs.python import LocalModels
from regard.verbs.train import TrainRequest, train
from regard.worker_process import WorkerDied, WorkerFailure, WorkerProcess, take_pipes

if TYPE_CHECKING:
    from regard.server.models.registry import ModelRegistry
    from regard.server.studio.routes import Studio

MAX_EPOCHS = 20
MAX_MESSAGES = 20
MAX_CHARACTERS = 900_000  # of an uploaded file
STOP_SECONDS = 20.0  # that a job may take to stop
GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
TERMINATED = 143  # exit code after SIGTERM
EXAMPLES = Path(__file__).with_name("messages.tsv")  # labeled messages that come with Regard
MAX_POINTS = 400  # of a learning curve
EXAMPLES_EPOCHS = 10  # there are few examples
Stripped = Annotated[str, StringConstraints(strip_whitespace=True)]


class TrainingForm(BaseModel):
    """What the page sends: `path` of a file, or `content` with the `name` of a file, or neither for the examples that
    come with Regard; the rest as in the request of `train`. A `limit` of 0 takes all examples."""

    model_config = ConfigDict(extra="forbid")

    task: str = "classify"
    path: Stripped = ""
    content: str = ""
    name: str = "examples.tsv"
    builtin_examples: bool = False
    model: str = DEFAULT_MODEL
    output: Stripped = ""
    epochs: int | None = Field(None, ge=1, le=MAX_EPOCHS)
    limit: int = Field(0, ge=0)
    columns: Stripped = ""


class CurvePoint(BaseModel):
    """The training loss at a step; at the end of an epoch also the score on dev, in percent."""

    step: int
    loss: float
    score: float | None = None


class TrainingStatus(BaseModel):
    """The progress of a job. `command` trains the same; times are in seconds."""

    state: Literal["running", "done", "failed", "cancelled"] = "running"
    stopping: bool = False
    error: str = ""
    task: str
    data: str
    model: str
    output: str
    command: str
    step: int = 0
    steps: int = 0
    epoch: int = 0
    epochs: int
    steps_per_second: float = 0.0
    seconds_left: float | None = None
    seconds: float = 0.0
    loss: float | None = None
    scores: dict[str, float] = Field(default_factory=dict)
    curve: list[CurvePoint] = Field(default_factory=list)
    messages: list[str] = Field(default_factory=list)


class TrainingOptions(BaseModel):
    """What the page's form offers, and the current job. `tasks` maps each task to the format of its files."""

    job: TrainingStatus | None
    tasks: dict[str, str]
    folder: str  # that the studio writes to
    builtin_examples: int
    builtin_labels: list[str]


class TrainingJob:
    """A request and its progress. With `upload`, the page sent the examples: their file is removed when the job gives
    no model."""

    def __init__(self, request: TrainRequest, *, upload: bool = False) -> None:
        self.request = request
        self.upload = upload
        settings = dict(setting.split("=") for setting in request.settings)
        self.progress = TrainingStatus(
            task=request.task,
            data=str(request.train),
            model=request.model or "a new ViT",
            output=str(request.output),
            command=train.command_line(request),
            epochs=int(settings["training.num_epochs"]),
        )
        self.stop = threading.Event()
        self.worker: WorkerProcess | None = None
        self._started = time.monotonic()

    def cancel(self) -> None:
        self.stop.set()
        if self.worker is not None:
            self.worker.terminate(GRACE_SECONDS)

    def end(self, state: Literal["done", "failed", "cancelled"], error: str = "") -> None:
        self.progress = self.status().model_copy(update={"state": state, "error": error, "stopping": False})

    def status(self) -> TrainingStatus:
        if self.progress.state != "running":
            return self.progress
        seconds = round(time.monotonic() - self._started, 1)
        return self.progress.model_copy(update={"seconds": seconds, "stopping": self.stop.is_set()})

    def on_message(self, line: str) -> None:
        self.progress.messages = [*self.progress.messages, line][-MAX_MESSAGES:]

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Update the progress from an event of the run. Raises Cancelled when the user has stopped it."""
        self.check_cancelled()
        progress = self.progress
        match event["type"]:
            case "note":
                self.on_message(event["message"])
            case "step":
                progress.step, progress.steps, progress.epoch = event["step"], event["steps"], event["epoch"]
                progress.steps_per_second = progress.step / max(event["seconds"], 1e-9)
                progress.loss, progress.seconds_left = event["loss"], event["seconds_left"]
                self._add_point(CurvePoint(step=progress.step, loss=event["loss"]))
            case "evaluation":
                progress.scores = event["scores"]
                scores = ", ".join(describe_scores(progress.scores, event.get("examples")))
                self.on_message(f"epoch {event['epoch']}: {scores}")
                score, loss = next(iter(progress.scores.values()), None), event.get("train_loss")
                if loss is not None:
                    step = (
                        round(progress.steps * event["epoch"] / progress.epochs) if progress.steps else event["epoch"]
                    )
                    self._add_point(CurvePoint(step=step, loss=loss, score=score))

    def _add_point(self, point: CurvePoint) -> None:
        """Add a point to the curve; of two at the same step the one with a score stays."""
        points = [one for one in self.progress.curve if one.step != point.step or one.score is not None]
        if not any(one.step == point.step for one in points):
            points.append(point)
        if len(points) > MAX_POINTS:  # every second point without a score
            points = [one for index, one in enumerate(points) if one.score is not None or index % 2]
        self.progress.curve = sorted(points, key=lambda one: one.step)

    def check_cancelled(self) -> None:
        if self.stop.is_set():
            raise Cancelled


def run_in_process(job: TrainingJob) -> Mapping[str, float]:
    """Train in a new process, report progress to the job and return the scores.

    Raises RegardError when the training fails. When the job is cancelled, the process ends within GRACE_SECONDS.
    """
    with tempfile.TemporaryFile() as errors:
        worker = WorkerProcess(
            "regard.server.studio.training",
            name="the training process",
            advice="there may be too little memory",
            errors=errors,
        )
        try:
            job.worker = worker
            job.check_cancelled()
            worker.send(job.request)
            while not isinstance(event := worker.receive(), WorkerFailure):
                if event["type"] == "result":
                    return dict(event["scores"])
                job.on_event(event)
            raise RegardError(event.message) if event.kind == "bug" else event.error()
        except WorkerDied as died:
            job.check_cancelled()
            raise RegardError(f"{died}{_last_line(errors)}") from None
        finally:
            worker.terminate(GRACE_SECONDS)
            worker.process.wait()
            worker.kill()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    last = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f": {last[:300]}" if last else ""


class TrainingJobs:
    """At most one job runs. `run` trains and returns the scores; by default in a process of its own, which can be
    stopped at any point."""

    def __init__(self, run: Callable[[TrainingJob], Mapping[str, float]] = run_in_process) -> None:
        self._train = run
        self.job: TrainingJob | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def check(self, output: Path | None) -> None:
        """Raise InputError when no job can start: another one runs, or the folder holds a model."""
        try:
            taken = output is not None and any((output / name).exists() for name in ("config.json", "regard.json"))
        except OSError as error:
            raise InputError(f"{str(output)[:80]!r} cannot be the name of a folder: {error.strerror}") from None
        if taken:
            raise InputError(f"{output} holds a model or a run; choose another name")
        if self.job is not None and self.job.progress.state == "running":
            raise InputError(f"{self.job.request.output} is being trained; wait for it, or stop it first")

    def start(self, request: TrainRequest, on_done: Callable[[str], None], *, upload: bool = False) -> threading.Thread:
        """Start a job, watched by a thread; `on_done` is called with the output folder of a successful job."""
        with self._lock:
            self.check(request.output)
            job = self.job = TrainingJob(request, upload=upload)
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
        folder = job.request.output
        was_empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        state: Literal["done", "failed", "cancelled"] = "failed"
        message = ""
        try:
            job.progress.scores = dict(self._train(job))
            job.check_cancelled()
            on_done(str(folder))
            state = "done"
        except Cancelled:
            state = "cancelled"
        except Exception as error:  # a failed training must not end the studio
            message = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
        # The output of a cancelled job is of no use and would block its name; a failed one may be resumed.
        resumable = state == "failed" and (job.progress.step > 0 or (folder / "config.json").exists())
        if state != "done" and was_empty and not resumable:
            with contextlib.suppress(InputError):  # a manifest that Regard did not write
                remove_output(folder)
        if state != "done" and job.upload:
            job.request.train.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()  # removes only an empty folder
        job.end(state, message)


def run_training(request: TrainRequest, on_event: Callable[[Event], None]) -> dict[str, float]:
    """Run the verb and return the scores of the best epoch."""
    report: Any = drain(train.run(request, LocalModels()), on_event)
    return dict(report.scores if report.keeps_baseline else report.best.scores)


def start_training(
    studio: Studio, arguments: Mapping[str, object], on_done: Callable[[str], None] = lambda folder: None
) -> TrainingOptions:
    """Start the job of a form, and return the state of the training; `on_done` is called with the folder of a model."""
    from regard.data.readers import holds_images
    from regard.tasks.registry import TASKS

    form = validated(TrainingForm, arguments)
    check_choice("task", form.task, TASKS)
    _check_model(studio.models, form.model)
    workspace = studio.workspace
    if len(form.content) > MAX_CHARACTERS:
        raise InputError(
            f"the file is too large to send; the studio accepts {MAX_CHARACTERS:,} characters. Give its path instead: "
            f"put it into {workspace.folder}, or restart with --data FILE"
        )
    upload = bool(form.content.strip())
    if [form.builtin_examples, bool(form.path), upload].count(True) != 1:
        raise InputError(
            f"expected labeled examples: the name of a file in {workspace.folder}, or a file to send; one of them"
        )
    if form.builtin_examples:
        form = TrainingForm(**form.model_dump(include={"builtin_examples", "model", "output", "epochs", "limit"}))
        name, data = EXAMPLES.name, EXAMPLES
        # Six dev sentences cannot tell a good epoch from a lucky one.
        settings = [f"training.num_epochs={form.epochs or EXAMPLES_EPOCHS}", "training.select=last"]
    else:
        name = safe_file_name(form.path or form.name, default="examples.tsv")
        data = workspace.readable(form.path) if form.path else workspace.folder / name
        settings = [f"training.num_epochs={form.epochs or _default_epochs(form.task)}"]
    if form.path and not os.path.exists(data):
        raise InputError(f"{form.path}: no such file on this machine; expected a file of labeled examples")
    output = workspace.output(form.output) if form.output else None  # None: a free one is chosen below
    studio.training_jobs.check(output)  # before anything is written: a refused request leaves nothing behind
    if upload:
        workspace.check_quota(len(form.content.encode("utf-8", "surrogatepass")))
    with contextlib.ExitStack() as undo:
        if upload:
            data = _create_unused(data, file=True)  # concurrent uploads get different files
            undo.callback(data.unlink)
            atomic_write(data, form.content.encode("utf-8", "surrogatepass"))
        if output is None:
            output = _create_unused(workspace.folder / f"{name.split('.')[0]}-{form.task}")
            undo.callback(output.rmdir)
        request = TrainRequest(
            task=form.task,
            train=data,
            model=None if form.model == DEFAULT_MODEL and holds_images(data) else form.model,
            output=output,
            settings=settings,
            limit=form.limit or None,
            columns=form.columns.split(",") if form.columns else None,
        )
        studio.training_jobs.start(request, on_done, upload=upload)
        undo.pop_all()
    return training_options(studio)


def _default_epochs(task: str) -> int:
    from regard.tasks.registry import get_task
    from regard.training.recipes.finetuning.config import FineTuningConfig

    return FineTuningConfig.load(defaults={"training": get_task(task).training_defaults}).training.num_epochs


def cancel_training(studio: Studio) -> TrainingOptions:
    """Stop the job."""
    studio.training_jobs.cancel()
    return training_options(studio)


def training_options(studio: Studio) -> TrainingOptions:
    """What the form of the page offers, and the progress of the job; null when there was none."""
    from regard.tasks.registry import TASKS

    job = studio.training_jobs.job
    labels = [line.rpartition("\t")[2] for line in EXAMPLES.read_text("utf-8").splitlines()]
    return TrainingOptions(
        job=None if job is None else job.status(),
        tasks={name: task.data_format for name, task in TASKS.items()},
        folder=str(studio.workspace.folder),
        builtin_examples=len(labels),
        builtin_labels=sorted(set(labels)),
    )


def _check_model(models: ModelRegistry, name: str) -> None:
    """Raise InputError when the model cannot be fine-tuned, as far as is known before it is loaded."""
    # Only local models: the studio downloads nothing.
    check_choice("model", name, {*models.paths, *builtin_names()})
    capabilities = models.capabilities(name)
    if capabilities is None or "fine-tuning" in capabilities:
        return
    problem = "translates" if "translation" in capabilities else "has no tasks"
    if "fine-tuned" in capabilities:
        problem = "is tuned for a task already"
    raise InputError(f"{name} {problem}; start from a pretrained model, such as {DEFAULT_MODEL}")


def safe_file_name(name: str, *, default: str) -> str:
    """Keep letters, digits, dots and dashes of a file name."""
    cleaned = re.sub(r"[^\w.-]+", "-", Path(name).name).strip(".-")
    return cleaned[:80] or default


def _create_unused(path: Path, *, file: bool = False) -> Path:
    """Create an empty folder or file at the path, or at the next one with a free number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, unused = 1, path
    while True:
        try:
            unused.touch(exist_ok=False) if file else unused.mkdir()
            return unused
        except FileExistsError:
            number += 1
            unused = path.with_name(f"{path.stem}-{number}{path.suffix}")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    received, replies = take_pipes()
    request = received.recv()
    threading.Thread(target=_exit_when_input_closes, args=(received,), daemon=True).start()
    try:
        scores = run_training(request, lambda event: replies.send(event.model_dump()))
        replies.send({"type": "result", "scores": scores})
    except Exception as error:
        replies.send(WorkerFailure.of(error))


def _exit_when_input_closes(received: Connection) -> None:
    """The studio holds the other end of the pipe: however it ended, the training is no longer wanted."""
    with contextlib.suppress(EOFError, OSError):
        received.recv()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    os._exit(TERMINATED)


if __name__ == "__main__":
    main()
