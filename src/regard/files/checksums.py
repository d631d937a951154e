"""SHA-256 of files, computed in parallel and cached between runs by size and modification time.

The cache is in the user's cache folder, so that a folder of many gigabytes is hashed once. If the cache cannot be read
or written, files are hashed again.
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

CHECKSUMS = "checksums.json"  # lists the files of a model folder

FileState = tuple[int, str]  # size, SHA-256
Verify = Literal["auto", "always", "never"]
CACHE = "REGARD_CACHE"  # environment variable for another cache folder
CACHE_VARIABLES = (CACHE, "XDG_CACHE_HOME", "HOME")  # that decide where it is
THREADS = 8  # hashing releases the GIL


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_all(paths: Iterable[Path]) -> list[str]:
    """Return the SHA-256 of each file, in the order of the paths."""
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(sha256_of, paths))


def file_states(folder: Path, names: Iterable[str]) -> dict[str, FileState]:
    """Return the size and SHA-256 of files of a folder, for `find_damage`."""
    paths = {name: folder / name for name in names}
    hashes = sha256_of_all(paths.values())
    return {name: (path.stat().st_size, digest) for (name, path), digest in zip(paths.items(), hashes, strict=True)}


def cache_folder() -> Path:
    """Return the cache folder: $REGARD_CACHE, $XDG_CACHE_HOME/regard or ~/.cache/regard."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "regard"


def find_damage(folder: Path, files: Mapping[str, FileState], *, verify: Verify = "auto") -> dict[str, str]:
    """Compare files of `folder` with their expected size and SHA-256; return a description of each damaged file.

    With `verify` "auto", a file is hashed unless its hash is cached and its size and modification time are the same;
    "always" hashes every file, and "never" compares sizes only.
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
    to_hash = [
        name for name, state in states.items() if verify == "always" or known.get(name) != [*state, files[name][1]]
    ]
    if not to_hash:
        return damage
    digests = dict(zip(to_hash, sha256_of_all(folder / name for name in to_hash), strict=True))
    damage |= {name: "is damaged: its SHA-256 does not match" for name in to_hash if digests[name] != files[name][1]}
    _write(cache, known | {name: [*states[name], digests[name]] for name in to_hash})
    return {name: damage[name] for name in files if name in damage}


def _cache(folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return cache_folder() / "verified" / f"{name}.json"


def _read(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(path: Path, known: Mapping[str, object]) -> None:
    with suppress(OSError, RegardError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(known).encode())


def written_files(folder: str | os.PathLike[str]) -> set[str]:
    """Return the names of the files listed in the `checksums.json` of a folder, and that file itself."""
    try:
        listed = read_json(Path(folder) / CHECKSUMS)
    except InputError:  # missing or damaged
        return set()
    valid = all(stays_inside(name) and str(value).startswith("sha256:") for name, value in listed.items())
    return {*listed, CHECKSUMS} if valid else set()


def stays_inside(name: str) -> bool:
    """Return whether `name` is a relative path that cannot leave its folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not re.search(r"[\\:\0]", name) and not any(part in ("/", "..") for part in parts)
