"""Checkpoints of a run: a folder of folders `step-000001200`, each of them written whole and checked when it is read.

A checkpoint is a folder of safetensors and JSON with their SHA-256. One process at a time writes to a folder, which the
caller ensures.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.checkpoints.files import OUR_WEIGHTS, read_tensors, verify, write_folder
from regard.errors import InputError, RegardError
from regard.files.checksums import CHECKSUMS
from regard.files.disk import COMMITTED, TEMPORARY, finish_save
from regard.files.json_files import json_bytes, read_json

STATE = "state.json"
STATE_BYTES = 64_000_000
STEP = re.compile(r"step-(\d{9,18})", re.ASCII)
UNFINISHED = re.compile(r"\.step-\d{9,18}\..+\.partial", re.ASCII)


@dataclass(frozen=True)
class TrainingCheckpoint:
    """The arguments of `save`: tensors, now on the CPU, and a state as JSON."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints in a folder; the newest `keep` intact ones are kept."""

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2) -> None:
        if keep < 1:
            raise InputError(f"keep is {keep}; expected how many checkpoints stay, at least 1")
        self.folder = Path(folder)
        self.keep = keep

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
        """Write one checkpoint, completely or not at all, and then delete the older ones that are no longer needed."""
        if not 0 <= step < 10**18:
            raise InputError(f"step is {step}; expected the number of steps done, at least 0")
        files = {STATE: _state_bytes(step, state)}
        place = self.folder / f"step-{step:09d}"
        if place.is_symlink():
            raise InputError(f"{place}: cannot be written: it is a link, which may lead anywhere; delete it")
        with suppress(OSError):  # the next save tries again
            self._sweep()  # first, because leftovers of a killed process take space that this save may need
        write_folder(place, tensors=tensors, files=files, overwrite=True)
        with suppress(OSError):  # the new checkpoint is saved, and the next save tries again
            self._prune(step)
        return place

    def latest(self, *, on_damaged: Callable[[str], None] | None = None) -> TrainingCheckpoint | None:
        """The newest checkpoint whose checksums hold, or None if there is none.

        Newer ones that are damaged are skipped and described to `on_damaged`.
        """
        damaged = []
        for step, place in self._newest_first():
            try:
                return _read(step, place)
            except (RegardError, OSError) as error:
                damaged.append(str(error))
                if on_damaged is not None:
                    on_damaged(str(error))
        if damaged:
            raise RegardError(
                f"{self.folder}: all of its {len(damaged)} checkpoints are damaged: {'; '.join(damaged)}. "
                "Put a copy of one of them back, or start again in another folder"
            )
        return None

    def any(self) -> bool:
        """Whether there is a checkpoint, intact or damaged."""
        return bool(self._newest_first())

    def newest_is_good(self) -> bool:
        """Whether the newest checkpoint matches its checksums; True if there is none."""
        return all(_is_good(place) for _, place in self._newest_first()[:1])

    def _newest_first(self) -> list[tuple[int, Path]]:
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        steps = {name: int(match[1]) for name in names if (match := STEP.fullmatch(name))}
        return sorted(((step, self.folder / name) for name, step in steps.items()), reverse=True)

    def _prune(self, written: int) -> None:
        """Delete the checkpoints older than the one just written, except the newest intact ones.

        A checkpoint that contains a foreign file is kept.
        """
        missing = self.keep - 1
        for step, place in self._newest_first():
            if step >= written or place.is_symlink() or not place.is_dir():
                continue
            if missing and _is_good(place):
                missing -= 1
            elif not _has_foreign_files(place):
                with suppress(OSError):  # the next save tries again
                    # A folder that is half deleted must not look like a damaged checkpoint.
                    os.rename(place, self.folder / f".{place.name}.deleted.partial")
        self._sweep()

    def _sweep(self) -> None:
        """Delete checkpoints marked for deletion, and incomplete ones that a killed process left."""
        for name in os.listdir(self.folder) if self.folder.is_dir() else []:
            if UNFINISHED.fullmatch(name):
                shutil.rmtree(self.folder / name, ignore_errors=True)


def _state_bytes(step: int, state: Mapping[str, Any]) -> bytes:
    """The state as JSON. Values that JSON would change are refused now, not when the run is resumed."""
    content = {"step": step, "state": dict(state)}
    try:
        data = json_bytes(content)
        same = json.loads(data) == content
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the state of a checkpoint must be JSON: {error}") from error
    if not same:
        raise InputError(
            "the state of a checkpoint must be JSON: it holds a tuple, a key that is no text or the like, "
            "which would come back as another value; use lists and text"
        )
    if len(data) > STATE_BYTES:
        raise InputError(
            f"the state of a checkpoint is larger than {STATE_BYTES:,} bytes; keep large values as tensors"
        )
    return data


def _read(step: int, place: Path) -> TrainingCheckpoint:
    _check_manifest(place)
    tensors = read_tensors(place)  # after comparing every file with its checksum
    content = read_json(place / STATE, limit=STATE_BYTES)
    state = content.get("state")
    if content.get("step") != step or not isinstance(state, dict):
        raise InputError(f"{place / STATE}: expected the state of step {step}; give the folder its own name again")
    return TrainingCheckpoint(step, tensors, state)


def _is_good(place: Path) -> bool:
    try:
        _check_manifest(place)
        verify(place)
    except (RegardError, OSError):
        return False
    return True


def _has_foreign_files(place: Path) -> bool:
    known = {STATE, CHECKSUMS, COMMITTED}
    return not all(
        name in known or OUR_WEIGHTS.fullmatch(name) or TEMPORARY.fullmatch(name) for name in os.listdir(place)
    )


def _check_manifest(place: Path) -> None:
    """Check the list of checksums itself: written by us to the byte, of our files only, and not a link.

    It is the one file without a checksum, so it must have exactly the form in which it is written.
    """
    if place.is_symlink() or not place.is_dir():
        raise InputError(f"{place}: expected the folder of a checkpoint, found a link or a file; delete it")
    finish_save(place)
    manifest = place / CHECKSUMS
    _refuse_link(manifest)
    listed = read_json(manifest)
    if manifest.read_bytes() != json_bytes(listed):
        raise InputError(f"{manifest}: not as it was written: damaged or cut short; copy the checkpoint again")
    for name in listed:
        if name != STATE and not OUR_WEIGHTS.fullmatch(name):
            raise InputError(f"{manifest}: refused: it lists {name!r}, which is no file of a checkpoint")
        _refuse_link(place / name)
    if STATE not in listed:
        raise InputError(f"{manifest}: does not list {STATE}; copy the checkpoint again")


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise InputError(f"{path}: refused: a link has no place in a checkpoint; put a copy of the file there")
