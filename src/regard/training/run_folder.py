"""The output folder of a training run: created, refused, resumed, finished.

regard.json       the manifest: data and model of the run, its files, and whether it is finished
config.toml       the settings
events.jsonl      the events, one line each
(a work folder)   what an unfinished run needs; removed when it is finished
report.json       the result

A run that fails before its first finished step removes its files, so that the next one finds nothing in its way.
"""

from __future__ import annotations

import json
import os
import posixpath
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.checkpoints.files import refuse_foreign_files, verify
from regard.errors import InputError, RegardError
from regard.events import Event
from regard.files.disk import atomic_write, finish_save
from regard.files.durable_folder import (
    LOCK,
    RECORD,
    DurableFolder,
    any_files,
    describe_changes,
)
from regard.files.json_files import json_bytes, read_json
from regard.render.result import Result
from regard.settings import check_saved_settings
from regard.training.events import Finished
from regard.training.tensorboard import TensorBoardLog

if TYPE_CHECKING:
    from regard.training.recipe import TrainingRun

CONFIG, EVENTS, REPORT = "config.toml", "events.jsonl", "report.json"
BEGINNING = (LOCK, CONFIG, EVENTS)  # the files that a run writes before its first step
MODEL = "config.json"
HOLDS_MODEL = "{} holds a model, which this run would write over; choose another --output"
# The files of a finished run beside its weights. A folder that holds one of them is refused.
OUTPUTS = (
    MODEL,
    REPORT,
    "language.json",
    "report.md",
    "task.json",
    "test.tsv",
    "tokenizer.json",
    "tokenizer_config.json",
    "translate.json",
    "vocab.txt",
)
State = Literal["new", "unfinished", "finished"]


def saved_config(output: str | os.PathLike[str], *, resume: bool) -> Path | None:
    """The settings that a run saved in its folder, if it is resumed; InputError if the file is damaged."""
    path = Path(output) / CONFIG
    if not resume or not path.is_file():
        return None
    check_saved_settings(path)
    return path


@contextmanager
def model_saved(path: Path) -> Iterator[None]:
    """Errors inside say that the model is saved, and how to finish the run."""
    try:
        yield
    except (OSError, RegardError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RegardError(
            f"{path}: the model is saved and complete, but the run could not be closed ({reason}); the same command "
            "with --resume closes it"
        ) from error


class RunReport(Result):
    """The result of a run; `output` is its folder."""

    output: str

    def file(self) -> bytes:
        """The report as the folder holds it: without the name of the folder, which may change."""
        return json_bytes({name: value for name, value in self.to_dict().items() if name != "output"})


class EventLog:
    """Appends events to `path`, one line of JSON each, and gives them to TensorBoard.

    A line that a crash cut short is ended first.
    """

    def __init__(self, path: Path, tensorboard: TensorBoardLog | None = None) -> None:
        complete = not path.exists() or not path.stat().st_size or path.read_bytes()[-1:] == b"\n"
        self._path, self._tensorboard, self._file = path, tensorboard, path.open("a", encoding="utf-8")
        if not complete:
            self._file.write("\n")

    def add(self, event: Event) -> Event:
        if self._tensorboard is not None:
            self._tensorboard.add(event)
        fields = event.model_dump(exclude_none=True)
        with model_saved(self._path.parent) if isinstance(event, Finished) else nullcontext():
            self._file.write(json.dumps({"type": fields.pop("type"), "time": round(time.time(), 3), **fields}) + "\n")
            self._file.flush()
        return event

    def finish(self) -> None:
        """Write what is left, when the model is saved."""
        with model_saved(self._path.parent):
            self._file.close()

    def close(self) -> None:
        """Safe to repeat."""
        with closing(self._tensorboard) if self._tensorboard else nullcontext():
            self._file.close()


class RunFolder:
    """The folder of a job; `beside` are subfolders with runs of their own.

    The manifest has the entries of the work folder, which a finished run removes unless the job keeps them.
    """

    created = False  # whether `open` created the folder

    def __init__(self, job: TrainingRun, path: Path, *, beside: Collection[str] = ()) -> None:
        self.path, self.config, self.work, self.keeps_work = path, job.config, path / job.work, job.keeps_work
        self.identity = json.loads(json.dumps(job.identity()))
        self.prepared = tuple(posixpath.join(job.work, name) for name in job.prepared_files())
        work = (*self.prepared, *(posixpath.join(job.work, name) for name in job.work_files()))
        files = (*BEGINNING, *(f"{name}/" for name in beside))
        self.durable = DurableFolder(
            path,
            kind=f"{job.kind} run",
            files=(*files, *work) if self.keeps_work else files,
            work=() if self.keeps_work else work,
            start=BEGINNING if self.keeps_work else (*BEGINNING, *self.prepared),
            beside=[name for name in beside if (path / name / RECORD).is_file()],
        )

    def finished(self) -> dict[str, Any] | None:
        """The report of the same run, if it is finished. A job that keeps its work says so itself."""
        if self.keeps_work or self._state() != "finished" or not (self.path / REPORT).is_file() or self._differences():
            return None
        verify(self.path)
        killed = (self.path / LOCK).exists()  # before it had removed the work and the lock
        with self.durable.locked() if killed else nullcontext():
            self.durable.remove_work()
        return read_json(self.path / REPORT)

    def open(self, *, resume: bool) -> None:
        """Refuse a folder that belongs to something else or cannot be written, before any work.

        With `resume` an unfinished run continues; a new or empty folder is fine too.
        """
        state = self._state()
        if not resume and (state == "unfinished" or (state == "finished" and self.keeps_work)):
            which = "an unfinished" if state == "unfinished" else "a finished"
            raise InputError(f"{self.path} holds {which} run: continue it with --resume, or choose another --output")
        if state == "finished" and not resume:
            raise InputError(HOLDS_MODEL.format(self.path))
        differences = [] if state == "new" else self._differences()
        if state == "finished" and not self.keeps_work:
            raise InputError(
                f"{self.path} holds no run to resume: it is finished, and "
                f"{'; '.join(differences or [f'its {REPORT} is gone'])}. Choose another --output"
            )
        if differences:
            compared = "settings or data" if "data" in self.identity else "settings"
            raise InputError(
                f"{self.path} was started with other {compared}: {'; '.join(differences)}. Resume with those, or "
                "choose another --output"
            )
        refuse_foreign_files(self.path, dict.fromkeys(OUTPUTS))
        if self.work != self.path and (self.work.is_symlink() or (self.work.exists() and not self.work.is_dir())):
            raise InputError(f"{self.work} is in the way: expected a folder or nothing; move it")
        try:
            self.created = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}; choose another --output") from None

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Lock the folder and write the manifest; if there is nothing to resume at the end, the files are removed."""
        with self.durable.locked(remove=self.created):
            self.durable.begin(self.identity)
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Own the folder while the run trains; then mark it as finished and remove the work folder."""
        with self.owned():
            self.work.mkdir(exist_ok=True)
            atomic_write(self.path / CONFIG, self.config.saved())
            yield
            with model_saved(self.path):
                self.durable.finish({})

    def _state(self) -> State:
        """The state of the run in the folder; InputError if the folder holds something else."""
        finish_save(self.path)
        record = self.durable.read()
        if record is None and (self.path / MODEL).exists():
            raise InputError(HOLDS_MODEL.format(self.path))
        self.durable.refuse_foreign()
        if record is None or record.finished:
            return "new" if record is None else "finished"
        trained = {*record.files, *record.work}.difference(BEGINNING, self.prepared)
        return "unfinished" if any_files(self.path, trained) else "new"

    def _differences(self) -> list[str]:
        saved, record = saved_config(self.path, resume=True), self.durable.read()
        found = self.config.saved_in(saved).differences(self.config) if saved else []
        return [*found, *describe_changes(record.identity if record else {}, self.identity)]
