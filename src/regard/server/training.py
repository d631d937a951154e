"""Fine-tuning from the page: started, watched and stopped, one job at a time, each in a process of its own.

    python -m regard.server.training

runs a job, which can be stopped at any point and frees its memory at the end. The request is one line of JSON on
standard input, which stays open while the training is wanted: when it is closed, the training ends. Standard output has
one line of JSON per event: {"event": {...}}, and finally {"scores": {...}} or {"error": text}.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from regard.errors import InputError, RegardError, check_choice
from regard.events import Event, Note, drain
from regard.known import DEFAULT_MODEL, builtin_names
from regard.verbs.base import validated

if TYPE_CHECKING:
    from regard.data.readers import ExampleSet
    from regard.server.model_registry import ModelRegistry
    from regard.server.studio import Studio

MAX_EPOCHS = 20
MAX_MESSAGES = 20
MAX_CHARACTERS = 900_000  # of an uploaded file
STOP_SECONDS = 20.0  # that a job may take to stop
GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
TERMINATED = 143  # exit code after SIGTERM
EXAMPLES = Path(__file__).with_name("messages.tsv")  # labeled messages that come with Regard
EXAMPLES_EPOCHS = 10  # there are few examples


class TrainingForm(BaseModel):
    """What the page sends: `path` of a file, or `content` with the `name` of a file, or neither for the examples that
    come with Regard."""

    model_config = ConfigDict(extra="forbid")

    task: str = "classify"
    path: str = ""
    content: str = ""
    name: str = "examples.tsv"
    builtin_examples: bool = False
    model: str = DEFAULT_MODEL
    output: str = ""
    epochs: int | None = Field(None, ge=1, le=MAX_EPOCHS)
    limit: int = Field(0, ge=0)
    columns: str = ""


class TrainingRequest(BaseModel):
    """What to train. `data` is a file; `limit` samples that many of its examples, 0 takes all.

    `select` is the epoch to keep: best or last. `upload` means that the page sent the file: it is removed when the
    job gives no model.
    """

    model_config = ConfigDict(frozen=True)

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
    messages: list[str] = Field(default_factory=list)


class TrainingOptions(BaseModel):
    """What the page's form offers, and the current job. `tasks` maps each task to the format of its files."""

    job: TrainingStatus | None
    tasks: dict[str, str]
    folder: str  # that the studio writes to
    builtin_examples: int
    builtin_labels: list[str]


class TrainingCancelled(Exception):
    """The user has stopped the job."""


class TrainingJob:
    """A request and its progress."""

    def __init__(self, request: TrainingRequest) -> None:
        self.request = request
        self.progress = TrainingStatus(
            **{name: getattr(request, name) for name in ("task", "data", "model", "output", "command", "epochs")}
        )
        self.stop = threading.Event()
        self._interrupt: Callable[[], None] | None = None  # ends the work that is being done for the job
        self._started = time.monotonic()

    def cancel(self) -> None:
        self.stop.set()
        if (interrupt := self._interrupt) is not None:
            interrupt()

    def on_cancel(self, interrupt: Callable[[], None] | None) -> None:
        """Have `cancel` call this too; call it now if the job is cancelled already."""
        self._interrupt = interrupt
        if interrupt is not None and self.stop.is_set():
            interrupt()

    def end(self, state: Literal["done", "failed", "cancelled"], error: str = "") -> None:
        self.progress = self.status().model_copy(update={"state": state, "error": error, "stopping": False})

    def status(self) -> TrainingStatus:
        if self.progress.state != "running":
            return self.progress
        seconds = round(time.monotonic() - self._started, 1)
        return self.progress.model_copy(update={"seconds": seconds, "stopping": self.stop.is_set()})

    def on_message(self, line: str) -> None:
        self.check_cancelled()
        self.progress.messages = [*self.progress.messages, line][-MAX_MESSAGES:]

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Update the progress from an event of the run. Raises TrainingCancelled when the user has stopped it."""
        self.check_cancelled()
        progress = self.progress
        match event["type"]:
            case "note":
                self.on_message(event["message"])
            case "step":
                progress.step, progress.steps, progress.epoch = event["step"], event["steps"], event["epoch"]
                progress.steps_per_second = progress.step / max(event["seconds"], 1e-9)
                progress.loss, progress.seconds_left = event["loss"], event["seconds_left"]
            case "evaluation":
                progress.scores = event["scores"]
                scores = ", ".join(f"{name} {value:.1f}" for name, value in progress.scores.items())
                self.on_message(f"epoch {event['epoch']}: {scores}")

    def check_cancelled(self) -> None:
        if self.stop.is_set():
            raise TrainingCancelled


def run_in_process(job: TrainingJob) -> Mapping[str, float]:
    """Train in a new process, report progress to the job and return the scores.

    Raises RegardError when the training fails. When the job is cancelled, the process ends within GRACE_SECONDS.
    """
    # -P: a file in the current folder must not shadow a library.
    command = [sys.executable, "-P", "-m", "regard.server.training"]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C goes to the studio, which then stops the training
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        try:
            job.on_cancel(lambda: _terminate(process))
            with contextlib.suppress(BrokenPipeError):  # it has ended already; the reason is read below
                process.stdin.write(json.dumps(job.request.model_dump()) + "\n")
                process.stdin.flush()
            for line in process.stdout:
                output = json.loads(line)
                if "event" in output:
                    job.on_event(output["event"])
                elif "scores" in output:
                    return dict(output["scores"])
                else:
                    raise RegardError(output["error"])
            job.check_cancelled()
            raise RegardError(f"the training process ended with code {process.wait()}{_last_line(errors)}")
        finally:
            job.on_cancel(None)
            _terminate(process)
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()


def _terminate(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM, and SIGKILL if the process does not end."""
    process.terminate()
    timer = threading.Timer(GRACE_SECONDS, process.kill)
    timer.daemon = True
    timer.start()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last[:300]}" if last else ""


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
        try:
            folder = Path(request.output) if request.output else None  # without a name, a free one is chosen later
            taken = folder is not None and any((folder / name).exists() for name in ("config.json", "run.json"))
        except OSError as error:
            raise InputError(f"{request.output[:80]!r} cannot be the name of a folder: {error.strerror}") from None
        if taken:
            raise InputError(f"{request.output} holds a model or a run; choose another name")
        if self.job is not None and self.job.progress.state == "running":
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
        state: Literal["done", "failed", "cancelled"] = "failed"
        message = ""
        try:
            job.progress.scores = dict(self._train(job))
            job.check_cancelled()
            on_done(job.request.output)
            state = "done"
        except TrainingCancelled:
            if was_empty:  # the incomplete output is of no use and would block its name
                _remove_output(folder)
            state = "cancelled"
        except Exception as error:  # a failed training must not end the studio
            if was_empty and not job.progress.step and not (folder / "config.json").exists():  # nothing to resume from
                _remove_output(folder)
            message = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
        finally:
            if job.request.upload and state != "done":
                Path(job.request.data).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()  # removes only an empty folder
            job.end(state, message)


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


def start_training(studio: Studio, arguments: Mapping[str, object]) -> TrainingOptions:
    """Start the job of a form, and return the state of the training."""
    from regard.tasks.registry import TASKS

    form = validated(TrainingForm, arguments)
    check_choice("task", form.task, TASKS)
    _check_model(studio.models, form.model)
    path, workspace = form.path.strip(), studio.workspace
    if len(form.content) > MAX_CHARACTERS:
        raise InputError(
            f"the file is too large to send; the studio accepts {MAX_CHARACTERS:,} characters. Give its path instead: "
            f"put it into {workspace.folder}, or restart with --data FILE"
        )
    if [form.builtin_examples, bool(path), bool(form.content.strip())].count(True) != 1:
        raise InputError(
            f"expected labeled examples: the name of a file in {workspace.folder}, or a file to send; one of them"
        )
    upload = not path and not form.builtin_examples
    name = EXAMPLES.name if form.builtin_examples else safe_file_name(path or form.name, default="examples.tsv")
    upload_path, output = workspace.folder / name, form.output.strip()
    request = TrainingRequest(
        task="classify" if form.builtin_examples else form.task,
        data=str(EXAMPLES if form.builtin_examples else workspace.readable(path) if path else upload_path),
        model=form.model,
        output=str(workspace.output(output)) if output else "",
        epochs=form.epochs or (EXAMPLES_EPOCHS if form.builtin_examples else 3),
        limit=form.limit,
        columns="" if form.builtin_examples else form.columns.strip(),
        select="last"
        if form.builtin_examples
        else "best",  # six dev sentences cannot tell a good epoch from a lucky one
        upload=upload,
    )
    if path and not os.path.exists(request.data):
        raise InputError(f"{path}: no such file on this machine; expected a file of labeled examples")
    studio.training_jobs.check(request)  # before anything is written: a refused request leaves nothing behind
    if upload:
        workspace.check_quota(len(form.content.encode("utf-8", "surrogatepass")))
    with contextlib.ExitStack() as undo:
        if upload:
            written = _write_upload(upload_path, form.content)
            request = request.model_copy(update={"data": str(written)})
            undo.callback(written.unlink)
        if not output:
            folder = _create_unused(upload_path.with_name(f"{name.split('.')[0]}-{request.task}"))
            request = request.model_copy(update={"output": str(folder)})
            undo.callback(folder.rmdir)
        studio.training_jobs.start(request, studio.models.add)
        undo.pop_all()
    return training_options(studio)


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
    check_choice("model", name, {*models.entries, *builtin_names()})
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


def _write_upload(path: Path, content: str) -> Path:
    """Write a file of that name, or with the next free number; concurrent uploads get different files."""
    unused = _create_unused(path, file=True)
    temporary = unused.with_name(f".{secrets.token_hex(8)}.part")
    try:
        temporary.write_text(content, encoding="utf-8", errors="surrogatepass")
        os.replace(temporary, unused)
    except BaseException:
        unused.unlink()
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return unused


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
    signal.signal(signal.SIGTERM, _raise_exit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output printed by libraries goes to standard error.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_when_input_closes, daemon=True).start()

    def send(**output: Any) -> None:
        print(json.dumps(output), file=lines, flush=True)

    try:
        send(scores=train(TrainingRequest(**request), on_event=lambda event: send(event=event.model_dump())))
    except RegardError as error:
        send(error=str(error))
    except Exception as error:
        send(error=f"{type(error).__name__}: {error}")


def _raise_exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


def _exit_when_input_closes() -> None:
    """The studio holds the other end of the pipe: however it ended, the training is no longer wanted."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    os._exit(TERMINATED)


if __name__ == "__main__":
    main()
