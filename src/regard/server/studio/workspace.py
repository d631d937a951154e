"""The files of a studio.

It writes below one folder, chosen when it starts. The page can name files in that folder and in the paths given with
--data, and no others: neither an answer nor an error may quote any other file of this machine.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from regard.errors import InputError

FOLDER = "trained"  # in the current folder
MAX_FILES = 100  # uploads, directly in the folder
MAX_BYTES = 100_000_000  # of all uploads
PROJECT = (".git", "pyproject.toml")  # found in the root of a project


class Workspace:
    """`folder` is written to; `data` are files and folders that are only read."""

    def __init__(self, folder: str | os.PathLike[str] = FOLDER, data: Sequence[str] = ()) -> None:
        self.folder = Path(os.path.expanduser(folder))
        self.data = [Path(os.path.expanduser(path)) for path in data]

    def check(self) -> None:
        """Raise InputError when the folder is not one to fill with models, or a path of `data` does not exist."""
        root, here, home = self.folder.resolve(), Path.cwd().resolve(), Path.home().resolve()
        problem = ""
        if root == Path(root.anchor):
            problem = "the root of the file system"
        elif root == home or root in home.parents:
            problem = "the home folder, or above it"
        elif root == here or root in here.parents:
            problem = "the folder where the studio was started, or above it"
        elif any((root / name).exists() for name in PROJECT):
            problem = "the root of a project"
        if problem:
            raise InputError(
                f"{self.folder} is {problem}; the studio needs a folder of its own to write to. Choose another, such "
                f"as --output {FOLDER}"
            )
        if root.exists() and not root.is_dir():
            raise InputError(f"{self.folder} is a file; expected a folder to write models to. Choose another --output")
        for path in self.data:
            if not path.exists():
                raise InputError(f"{path}: no such file or folder; --data expects examples that the page may name")

    def output(self, name: str) -> Path:
        """The folder for a new model of this name. Raises InputError when it is not below the workspace folder."""
        root = self.folder.resolve()
        path = next((path for path in _resolve(name, [self.folder]) if path != root), None)
        if path is None:
            raise InputError(
                f"{name[:80]!r} is not below {self.folder}, where the studio writes. Give a plain name, or restart the "
                "studio with another --output"
            )
        return self.folder / path.relative_to(root)

    def readable(self, name: str) -> Path:
        """A file or folder named by the page, existing or not. Raises InputError when it must not be read."""
        paths = _resolve(name, [self.folder, *self.data])
        if not paths:
            raise InputError(
                f"{name[:80]}: the page may name files below {self.folder}, and those given with --data. Send the "
                f"file instead, or restart with: regard studio --data {shlex.quote(name[:200])}"
            )
        return next((path for path in paths if path.exists()), paths[0])

    def check_quota(self, size: int) -> None:
        """Raise InputError when an upload of `size` bytes would exceed the quota."""
        try:
            with os.scandir(self.folder) as entries:
                sizes = [one.stat().st_size for one in entries if one.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return
        if len(sizes) >= MAX_FILES or sum(sizes) + size > MAX_BYTES:
            raise InputError(
                f"{self.folder} holds {len(sizes):,} files of {sum(sizes):,} bytes; uploads may be {MAX_FILES} files "
                f"of {MAX_BYTES:,} bytes in all. Delete some, or give a path with --data"
            )


def _resolve(name: str, folders: Sequence[Path]) -> list[Path]:
    """Resolve a name, with its links, relative to the current folder and then to each of `folders`; keep the paths that
    are in one of them."""
    path = Path(os.path.expanduser(name))
    try:
        roots = [folder.resolve() for folder in folders]
        candidates = [path.resolve(), *((root / path).resolve() for root in roots if not root.is_file())]
    except (OSError, ValueError, RuntimeError):  # an impossible file name, or a cycle of links
        raise InputError(f"{name[:80]!r} cannot be the name of a file") from None
    return [one for one in candidates if any(one == root or root in one.parents for root in roots)]
