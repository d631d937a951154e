"""The folder of a run that trains: begun, refused, gone on with, finished.

Knows the files that say what a run is and where it stands. Knows nothing of what is trained.

    regard.json            the manifest: which files of the folder are the run's own, and whether it is finished
    config.toml run.json   the settings, and what the run was made from
    events.jsonl           what happened, a line an event
    (a folder of work)     what an unfinished run needs; gone when it is over
    report.json            what came out
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

from regard.checkpoints.files import refuse_foreign_files, verify
from regard.errors import InputError, RegardError
from regard.files.disk import atomic_write, finish_save
from regard.files.folder_lock import LOCK, describe_changes, lock_folder
from regard.files.json_files import json_bytes, read_checked_json, read_json, with_checksum
from regard.files.output_folder import OutputManifest, foreign_entries, refuse_foreign_content, remove_files
from regard.settings import SettingsFile, check_saved_settings
from regard.training.events import Events

__all__ = ["CONFIG", "REPORT", "RUN", "Note", "RunFolder", "Told", "model_saved"]

CONFIG, RUN, EVENTS, REPORT = "config.toml", "run.json", "events.jsonl", "report.json"
MODEL = "config.json"
# What a finished run writes, beside its weights. Whatever has one of these names before is refused.
OUTPUTS = (
    MODEL,
    REPORT,
    "report.md",
    "task.json",
    "test.tsv",
    "tokenizer.json",
    "tokenizer_config.json",
    "translate.json",
    "vocab.txt",
)
State = Literal["new", "begun", "finished"]
Told = Callable[[Mapping[str, Any]], None]


class Note(Protocol):
    """Writes an event down."""

    def __call__(self, event: str, **values: object) -> None: ...


@contextmanager
def model_saved(path: Path) -> Iterator[None]:
    """What fails inside comes after the model was saved: the error says so, and how to finish the run."""
    try:
        yield
    except (OSError, RegardError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RegardError(
            f"{path}: the model is saved and complete, but the run could not be closed ({reason}); the same command "
            "with --resume closes it"
        ) from error


class RunFolder:
    """`run` is what, beside the settings, must be the same for a run to go on; `work` names the folder of work.

    `work_files` are the entries of the manifest for that folder, relative to it: all that a finished run removes.
    """

    def __init__(
        self,
        path: Path,
        config: SettingsFile,
        run: Mapping[str, Any],
        *,
        work: str,
        work_files: Sequence[str] = (),
        kind: str = "training run",
    ) -> None:
        self.path, self.config, self.work = path, config, path / work
        self.run = json.loads(json.dumps(run))
        entries = tuple(f"{work}/{name}" for name in work_files)
        self.manifest = OutputManifest(kind, (LOCK, CONFIG, RUN, EVENTS), entries)

    def finished(self) -> dict[str, Any] | None:
        """The report of the same run, where it is over."""
        if self._state() != "finished" or not (self.path / REPORT).is_file() or self._differences():
            return None
        verify(self.path)
        self._remove_work()  # what a kill amid the removal has left
        return read_json(self.path / REPORT)

    def open(self, *, resume: bool, beside: Collection[str] = ()) -> None:
        """Refuse a folder that is not this run's or cannot be written, before any work.

        With `resume` a run that was begun goes on, and a new or empty folder is one where none was begun yet. `beside`
        are folders in it with runs of their own.
        """
        state = self._state(beside=beside)
        if state == "begun" and not resume:
            raise InputError(f"{self.path} holds a run that was begun: go on with --resume, or choose another --output")
        if state == "begun" and (differences := self._differences()):
            raise InputError(
                f"{self.path} was begun otherwise: {'; '.join(differences)}. Resume with those, or choose another "
                "--output"
            )
        if state == "finished" and resume:
            differences = self._differences() or [f"its {REPORT} is gone"]
            raise InputError(
                f"{self.path} holds no run to resume: it is finished, and {'; '.join(differences)}. Choose another "
                "--output"
            )
        if state == "finished":
            raise InputError(f"{self.path} holds a model, which this run would write over; choose another --output")
        refuse_foreign_files(self.path, dict.fromkeys(OUTPUTS))
        if self.work.is_symlink() or (self.work.exists() and not self.work.is_dir()):
            raise InputError(f"{self.work} is in the way: expected a folder or nothing; move it")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}; choose another --output") from None

    def claim(self, *entries: str) -> None:
        """Write the manifest, with more entries than a run has by itself."""
        before = OutputManifest.read(self.path, kind=self.manifest.kind)
        files, work = (*self.manifest.files, *entries), self.manifest.work
        if before is not None:  # of an earlier version, perhaps
            files, work = (*before.files, *files), (*before.work, *work)
        self.manifest = replace(self.manifest, files=tuple(dict.fromkeys(files)), work=tuple(dict.fromkeys(work)))
        self.manifest.write(self.path)

    @contextmanager
    def running(self, on_event: Told) -> Iterator[Note]:
        """This process' own, with what writes its events down. At a good end the files of work go."""
        with lock_folder(self.path):
            self.claim()  # before the first file that it lists
            self.work.mkdir(exist_ok=True)
            with Events(self.path / EVENTS) as events:
                atomic_write(self.path / CONFIG, self.config.saved())
                atomic_write(self.path / RUN, json_bytes(with_checksum(self.run)))

                def note(event: str, **values: object) -> None:
                    on_event(events.add(event, **values))

                yield note
                with model_saved(self.path):
                    events.close()
                    replace(self.manifest, finished=True).write(self.path)
                    self._remove_work()

    def _state(self, *, beside: Collection[str] = ()) -> State:
        """How far the run in the folder is; InputError where the folder holds something else."""
        finish_save(self.path)
        manifest = OutputManifest.read(self.path, kind=self.manifest.kind)
        if manifest is not None:
            return "finished" if manifest.finished else "begun" if (self.path / RUN).is_file() else "new"
        if not foreign_entries(self.path):
            return "new"
        if self._is_earlier():
            return "begun" if self.work.is_dir() else "finished"
        if (self.path / MODEL).exists():
            raise InputError(f"{self.path} holds a model, which this run would write over; choose another --output")
        refuse_foreign_content(self.path, except_for=[name for name in beside if (self.path / name / RUN).is_file()])
        return "new"

    def _is_earlier(self) -> bool:
        """Whether a version of Regard without manifests made the folder: by its run.json and config.toml."""
        try:
            type(self.config).load(self.path / CONFIG, saved=True)
            return set(read_checked_json(self.path / RUN)) == set(self.run)
        except InputError:
            return False

    def _differences(self) -> list[str]:
        found = []
        if (self.path / CONFIG).is_file():
            check_saved_settings(self.path / CONFIG)
            found += type(self.config).load(self.path / CONFIG, saved=True).differences(self.config)
        if (self.path / RUN).is_file():
            found += describe_changes(self._record(), self.run)
        return found

    def _record(self) -> dict[str, Any]:
        try:
            return read_checked_json(self.path / RUN)
        except InputError as error:
            raise InputError(f"{error}; put a copy of it back, or start again in another --output") from None

    def _remove_work(self) -> None:
        """Delete the work of a finished run; only then the manifest stops listing it."""
        manifest = OutputManifest.read(self.path)
        if manifest is not None and manifest.work and remove_files(self.path, manifest.work):
            replace(manifest, work=()).write(self.path)
