"""What unfinished work belongs to: the texts, the model and the settings, and how two such records differ.

Knows JSON values and the files of a model folder, by their bytes only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from regard.file_input import open_file
from regard.unfinished import changes

__all__ = ["Manifest", "differences", "fingerprint", "manifest"]

Manifest = Mapping[str, object]

FORMAT = 1
SMALL = 1 << 24  # bytes: a larger file is known by its size and by samples
SAMPLES, SAMPLE = 64, 1 << 16
PARTS = {"format": "Regard's version", "input": "the texts", "model": "the model's files"}


def manifest(*, texts: str, model: Path, continuable: bool, settings: Mapping[str, object]) -> Manifest:
    """The record of a job, as JSON holds it."""
    return {
        "format": FORMAT,
        "continuable": continuable,
        "input": texts,
        "model": fingerprint(model),
        "settings": dict(settings),
    }


def differences(old: Manifest, new: Manifest) -> list[str]:
    """What of an old record is otherwise in the new one, in words; empty where the work can go on."""
    found = [f"{words} changed" for key, words in PARTS.items() if old.get(key) != new[key]]
    before, now = old.get("settings"), new["settings"]
    assert isinstance(now, dict)
    if not isinstance(before, dict):
        return found or ["the record is damaged"]
    return found + changes(before, now)


def fingerprint(folder: Path) -> str:
    """A hash of a model folder's files that is cheap for weights of any size and changes when they are trained on."""
    names = [path for path in folder.iterdir() if path.suffix in (".json", ".txt", ".safetensors", ".bin")]
    digest = hashlib.sha256()
    for path in sorted([*names, folder / "1_Pooling" / "config.json"]):
        if not path.is_file():
            continue
        size = os.path.getsize(path)
        digest.update(f"{path.relative_to(folder).as_posix()}:{size}:".encode())
        with open_file(path) as file:
            if size <= SMALL:
                digest.update(file.read())
                continue
            for sample in range(SAMPLES):
                file.seek(sample * (size - SAMPLE) // (SAMPLES - 1))
                digest.update(file.read(SAMPLE))
    return digest.hexdigest()
