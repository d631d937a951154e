"""The folder of a run that trains: begun, refused, gone on with, finished.

Knows the files that say what a run is and where it stands. Knows nothing of what is trained.

    config.toml run.json   the settings, and what the run was made from
    events.jsonl           what happened, a line an event
    (a folder of work)     what an unfinished run needs; gone when it is over
    report.json            what came out
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from regard.disk import atomic_write
from regard.errors import InputError
from regard.settings import Document, check_saved
from regard.train.events import Events
from regard.unfinished import changes, locked
from regard.weights.documents import json_bytes, read_checked_json, read_json, with_checksum
from regard.weights.files import verify

__all__ = ["CONFIG", "REPORT", "RUN", "Note", "RunFolder", "Told"]

CONFIG, RUN, EVENTS, REPORT = "config.toml", "run.json", "events.jsonl", "report.json"
Told = Callable[[Mapping[str, Any]], None]


class Note(Protocol):
    """Writes an event down."""

    def __call__(self, event: str, **values: object) -> None: ...


class RunFolder:
    """`run` is what, beside the settings, must be the same for a run to go on; `work` names the folder of work."""

    def __init__(self, path: Path, config: Document, run: Mapping[str, Any], *, work: str) -> None:
        self.path, self.config, self.work = path, config, path / work
        self.run = json.loads(json.dumps(run))

    def finished(self) -> dict[str, Any] | None:
        """The report of the same run, where it is over."""
        if not (self.path / REPORT).is_file() or self.work.is_dir() or not (self.path / RUN).is_file():
            return None
        if self._record() != self.run or self._changes():
            return None
        verify(self.path)
        return read_json(self.path / REPORT)

    def open(self, *, resume: bool) -> None:
        """Refuse a folder that cannot be written or gone on with, before any work."""
        begun = (self.path / RUN).is_file() and self.work.is_dir()
        if begun and not resume:
            raise InputError(f"{self.path} holds a run that was begun: go on with --resume, or choose another --output")
        if resume and not begun:
            raise InputError(f"{self.path} holds no run to resume; leave --resume out to begin one")
        if begun:
            differences = self._changes() + changes(self._record(), self.run)
            if differences:
                raise InputError(
                    f"{self.path} was begun otherwise: {'; '.join(differences)}. Resume with those, or choose another "
                    "--output"
                )
        elif (self.path / "config.json").exists():
            raise InputError(f"{self.path} holds a model, which this run would write over; choose another --output")
        try:
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}; choose another --output") from None

    @contextmanager
    def running(self, on_event: Told) -> Iterator[Note]:
        """This process' own, with what writes its events down. At a good end the folder of work goes."""
        with locked(self.path), Events(self.path / EVENTS) as events:
            atomic_write(self.path / CONFIG, self.config.saved())
            atomic_write(self.path / RUN, json_bytes(with_checksum(self.run)))

            def note(event: str, **values: object) -> None:
                on_event(events.add(event, **values))

            yield note
            self._forget()

    def _record(self) -> dict[str, Any]:
        try:
            return read_checked_json(self.path / RUN)
        except InputError as error:
            raise InputError(f"{error}; put a copy of it back, or start again in another --output") from None

    def _changes(self) -> list[str]:
        check_saved(self.path / CONFIG)
        return type(self.config).load(self.path / CONFIG).differences(self.config)

    def _forget(self) -> None:
        """Delete the work under another name: what is half deleted must not look like a run that goes on."""
        gone = self.work.with_name(f".{self.work.name}.partial")
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(self.work, gone)
        shutil.rmtree(gone, ignore_errors=True)
