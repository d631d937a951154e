"""What unfinished or finished work belongs to: the texts, the model and the settings, and how two such records differ.

Knows JSON values and the files of a model folder, by their bytes only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from regard.files.checksums import sha256_of_all
from regard.files.folder_lock import describe_changes

__all__ = ["Manifest", "differences", "fingerprint", "manifest"]

Manifest = Mapping[str, object]

FORMAT = 2  # 1 knew large files by samples of them
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
    return found + describe_changes(before, now)


def fingerprint(folder: Path) -> str:
    """A hash of all bytes of a model folder's files: no two models have the same."""
    names = [path for path in folder.iterdir() if path.suffix in (".json", ".txt", ".safetensors", ".bin")]
    paths = [path for path in sorted([*names, folder / "1_Pooling" / "config.json"]) if path.is_file()]
    digest = hashlib.sha256()
    for path, content in zip(paths, sha256_of_all(paths), strict=True):
        digest.update(f"{path.relative_to(folder).as_posix()}:{content}\n".encode())
    return digest.hexdigest()
