"""SHA-256 of files: computed in parallel, and remembered between runs by size and modification time.

What was computed is kept in the user's cache folder, so that a folder of many gigabytes is read once; a cache that
cannot be read or written costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from regard.errors import InputError, RegardError, check_choice
from regard.files.disk import atomic_write
from regard.files.file_input import open_file
from regard.files.json_files import read_json

__all__ = [
    "CHECKSUMS",
    "Verify",
    "cache_folder",
    "find_damage",
    "sha256_of",
    "sha256_of_all",
    "stays_inside",
    "written_files",
]

CHECKSUMS = "checksums.json"  # the file of a model folder that lists its files

Verify = Literal["auto", "always", "never"]
CACHE = "REGARD_CACHE"  # the environment variable that names another cache folder
THREADS = 8  # hashing leaves the interpreter's lock, so threads use several cores


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_all(paths: Iterable[Path]) -> list[str]:
    """The SHA-256 of each file, in the order of the paths."""
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(sha256_of, paths))


def cache_folder() -> Path:
    """Where Regard keeps what it can compute again: $REGARD_CACHE, $XDG_CACHE_HOME/regard or ~/.cache/regard."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "regard"


def find_damage(folder: Path, files: Mapping[str, tuple[int, str]], *, verify: Verify = "auto") -> dict[str, str]:
    """Compare files of `folder` with their size and SHA-256; returns what is wrong with each damaged one, in words.

    `verify` says when a file is hashed: "auto" unless it was hashed before and has the same size and modification time
    since, "always", or "never", which compares sizes only.
    """
    check_choice("verification", verify, get_args(Verify))
    damage: dict[str, str] = {}
    states: dict[str, list[object]] = {}
    for name, (size, _) in files.items():
        try:
            state = (folder / name).stat()
        except OSError as error:
            damage[name] = f"cannot be read ({error.strerror})"
            continue
        if not stat.S_ISREG(state.st_mode):
            damage[name] = "is not a regular file"
        elif state.st_size != size:
            damage[name] = f"is damaged: it has {state.st_size:,} bytes, expected {size:,}"
        else:
            states[name] = [state.st_size, state.st_mtime_ns, state.st_ino]
    if verify == "never":
        return damage
    cache = _cache(folder)
    known = _read(cache)
    doubtful = [
        name for name, state in states.items() if verify == "always" or known.get(name) != [*state, files[name][1]]
    ]
    if not doubtful:
        return damage
    found = dict(zip(doubtful, sha256_of_all(folder / name for name in doubtful), strict=True))
    damage |= {name: "is damaged: its SHA-256 is another" for name in doubtful if found[name] != files[name][1]}
    _write(cache, known | {name: [*states[name], found[name]] for name in doubtful})
    return {name: damage[name] for name in files if name in damage}


def _cache(folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return cache_folder() / "verified" / f"{name}.json"


def _read(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: Path, known: Mapping[str, object]) -> None:
    with suppress(OSError, RegardError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(known).encode())


def written_files(folder: str | os.PathLike[str]) -> set[str]:
    """The names of the files that `write_folder` put into a folder, by its `checksums.json`; that file included."""
    try:
        listed = read_json(Path(folder) / CHECKSUMS)
    except InputError:  # none, or damaged
        return set()
    ours = all(stays_inside(name) and str(value).startswith("sha256:") for name, value in listed.items())
    return {*listed, CHECKSUMS} if ours else set()


def stays_inside(name: str) -> bool:
    """Whether `name` is that of a file in the folder or in a folder of it, and cannot lead out."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not re.search(r"[\\:\0]", name) and not any(part in ("/", "..") for part in parts)
