"""The output folder of a training run: created, refused, resumed, finished.

regard.json            the manifest: which files of the folder belong to the run, and whether it is finished
config.toml run.json   the settings, and the data and model of the run
events.jsonl           the events, one line each
(a work folder)        what an unfinished run needs; removed when it is finished
report.json            the result

A run that fails before its first finished step removes its files, so that the next one finds nothing in its way.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.checkpoints.files import refuse_foreign_files, verify
from regard.errors import InputError, RegardError
from regard.events import Event
from regard.files.disk import atomic_write, finish_save
from regard.files.durable_folder import (
    LOCK,
    RECORD,
    FolderRecord,
    any_files,
    describe_changes,
    lock_folder,
    refuse_foreign_content,
    remove_files,
)
from regard.files.json_files import json_bytes, read_checked_json, read_json, with_checksum
from regard.render.result import Result
from regard.settings import check_saved_settings
from regard.training.events import EventLog, Finished
from regard.training.tensorboard import TensorBoardLog

if TYPE_CHECKING:
    from regard.training.recipe import TrainingRun

CONFIG, RUN, EVENTS, REPORT = "config.toml", "run.json", "events.jsonl", "report.json"
BEGINNING = (LOCK, CONFIG, RUN, EVENTS)  # the files that a run writes before its first step
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


def read_record(path: Path, kind: str, *, beside: Collection[str] = ()) -> FolderRecord | None:
    """The manifest of a run; InputError if the folder holds something else. `beside` are subfolders of other runs."""
    finish_save(path)
    manifest = FolderRecord.read(path, kind=kind)
    if manifest is None and (path / MODEL).exists():
        raise InputError(HOLDS_MODEL.format(path))
    if manifest is None:
        refuse_foreign_content(path, except_for=[name for name in beside if (path / name / RUN).is_file()])
    return manifest


def create_folder(path: Path) -> bool:
    """Create a folder unless it exists; returns whether it was created."""
    try:
        created = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; choose another --output") from None
    return created


@contextmanager
def discarded_unless(
    is_begun: Callable[[], bool], path: Path, manifest: FolderRecord, *, created: bool
) -> Iterator[None]:
    """If the body fails before there is anything to resume, delete the files of the manifest, which the run wrote.

    The folder is deleted too if the run `created` it and nothing else is in it.
    """
    try:
        yield
    except BaseException:
        if not is_begun() and remove_files(path, [*manifest.work, *manifest.files]):
            with suppress(OSError):
                (path / RECORD).unlink(missing_ok=True)
                if created:
                    path.rmdir()
        raise


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


class RunLog(EventLog):
    """The log of a run folder, and the same events for TensorBoard."""

    def __init__(self, folder: Path, tensorboard: TensorBoardLog | None = None) -> None:
        super().__init__(folder / EVENTS)
        self._folder, self._tensorboard = folder, tensorboard

    def add(self, event: Event) -> Event:
        if self._tensorboard is not None:
            self._tensorboard.add(event)
        with model_saved(self._folder) if isinstance(event, Finished) else nullcontext():
            return super().add(event)

    def finish(self) -> None:
        with model_saved(self._folder):
            super().close()

    def close(self) -> None:
        with closing(self._tensorboard) if self._tensorboard else nullcontext():
            super().close()


class RunFolder:
    """The folder of a job; `beside` are subfolders with runs of their own.

    The manifest has the entries of the work folder, which a finished run removes.
    """

    created = False  # whether `open` created the folder

    def __init__(self, job: TrainingRun, path: Path, *, beside: Collection[str] = ()) -> None:
        self.path, self.config, self.work, self.beside = path, job.config, path / job.work, beside
        self.run, self.keeps_work = json.loads(json.dumps(job.identity())), job.keeps_work
        self.prepared = tuple(posixpath.join(job.work, name) for name in job.prepared_files())
        work = (*self.prepared, *(posixpath.join(job.work, name) for name in job.work_files()))
        files = (*BEGINNING, *(f"{name}/" for name in beside))
        kept = (*files, *work), ()
        self.manifest = FolderRecord(f"{job.kind} run", *(kept if self.keeps_work else (files, work)))

    def finished(self) -> dict[str, Any] | None:
        """The report of the same run, if it is finished. A job that keeps its work says so itself."""
        if self.keeps_work or self._state() != "finished" or not (self.path / REPORT).is_file() or self._differences():
            return None
        verify(self.path)
        self._remove_work()  # left by a process that was killed while removing it
        return read_json(self.path / REPORT)

    def open(self, *, resume: bool) -> None:
        """Refuse a folder that belongs to something else or cannot be written, before any work.

        With `resume` an unfinished run continues; a new or empty folder is fine too.
        """
        state = self._state()
        if state == "unfinished" and not resume:
            raise InputError(
                f"{self.path} holds an unfinished run: continue it with --resume, or choose another --output"
            )
        if state == "unfinished" and (differences := self._differences()):
            raise InputError(
                f"{self.path} was started with other settings or data: {'; '.join(differences)}. Resume with those, or "
                "choose another --output"
            )
        if state == "finished" and not resume:
            raise InputError(HOLDS_MODEL.format(self.path))
        if state == "finished" and ((differences := self._differences()) or not self.keeps_work):
            raise InputError(
                f"{self.path} holds no run to resume: it is finished, and "
                f"{'; '.join(differences or [f'its {REPORT} is gone'])}. Choose another --output"
            )
        refuse_foreign_files(self.path, dict.fromkeys(OUTPUTS))
        if self.work != self.path and (self.work.is_symlink() or (self.work.exists() and not self.work.is_dir())):
            raise InputError(f"{self.work} is in the way: expected a folder or nothing; move it")
        self.created = create_folder(self.path)

    def claim(self) -> None:
        """Write the manifest."""
        before = FolderRecord.read(self.path, kind=self.manifest.kind)
        if before is not None:  # with the entries of other settings
            files, work = (*before.files, *self.manifest.files), (*before.work, *self.manifest.work)
            self.manifest = replace(before, files=tuple(dict.fromkeys(files)), work=tuple(dict.fromkeys(work)))
        self.manifest.write(self.path)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Lock the folder while the run trains; then mark it as finished and remove the work folder."""
        with lock_folder(self.path):
            self.claim()  # before the first file it lists
            if not self.is_begun():  # what a killed process prepared may have been for other settings
                remove_files(self.path, [EVENTS, *(() if self.keeps_work else self.prepared)])
            with self.discarded_unless_begun():
                self.work.mkdir(exist_ok=True)
                atomic_write(self.path / CONFIG, self.config.saved())
                atomic_write(self.path / RUN, json_bytes(with_checksum(self.run)))
                yield
            with model_saved(self.path):
                replace(self.manifest, finished=True).write(self.path)
                self._remove_work()

    def discarded_unless_begun(self) -> AbstractContextManager[None]:
        """If the body fails before the first finished step, the files of the run are removed."""
        is_begun = partial(self.is_begun, prepared=self.keeps_work)
        return discarded_unless(is_begun, self.path, self.manifest, created=self.created)

    def is_begun(self, *, prepared: bool = False) -> bool:
        """Whether the folder holds anything to resume: a checkpoint, a result, a run beside it, or what is prepared."""
        manifest = FolderRecord.read(self.path, kind=self.manifest.kind) or self.manifest
        beginning = {*BEGINNING, *(() if prepared else self.prepared)}
        return any_files(self.path, {MODEL, *manifest.files, *manifest.work} - beginning)

    def _state(self) -> State:
        """The state of the run in the folder; InputError if the folder holds something else."""
        manifest = read_record(self.path, self.manifest.kind, beside=self.beside)
        if manifest is not None and manifest.finished:
            return "finished"
        begun = manifest is not None and (self.path / RUN).is_file() and self.is_begun()
        return "unfinished" if begun else "new"

    def _differences(self) -> list[str]:
        found = []
        if path := saved_config(self.path, resume=True):
            found += self.config.saved_in(path).differences(self.config)
        if (self.path / RUN).is_file():
            try:
                found += describe_changes(read_checked_json(self.path / RUN), self.run)
            except InputError as error:
                raise InputError(f"{error}; put a copy of it back, or start again in another --output") from None
        return found

    def _remove_work(self) -> None:
        """Delete the work folder of a finished run; only then the manifest stops listing it."""
        manifest = FolderRecord.read(self.path)
        if manifest is not None and manifest.work and remove_files(self.path, manifest.work):
            replace(manifest, work=()).write(self.path)
