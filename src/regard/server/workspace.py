"""Where the studio may write, and which files the page may name.

Knows paths. Knows no view and no model. The studio writes below one folder, which the user chooses when the studio
starts; the page can name files in it and in what the user gave with --data, and nothing else: an answer or an error
that quotes a file must not quote any other file of this machine.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from regard.errors import InputError

__all__ = ["FOLDER", "Workspace"]

FOLDER = "trained"  # in the folder where the studio was started
MOST_FILES = 100  # that may lie directly in the folder; they are uploads
MOST_BYTES = 100_000_000  # of all of them
PROJECT = (".git", "pyproject.toml")  # what is in the root of a project


class Workspace:
    """`folder` is written to; `data` are files and folders that are only read."""

    def __init__(self, folder: str | os.PathLike[str] = FOLDER, data: Sequence[str] = ()) -> None:
        self.folder = Path(os.path.expanduser(folder))
        self.data = [Path(os.path.expanduser(path)) for path in data]

    def check(self) -> None:
        """InputError where the folder is one that must not be filled with models, or data is not there."""
        root, here, home = self.folder.resolve(), Path.cwd().resolve(), Path.home().resolve()
        why = ""
        if root == Path(root.anchor):
            why = "the root of the file system"
        elif root == home or root in home.parents:
            why = "the home folder, or above it"
        elif root == here or root in here.parents:
            why = "the folder where the studio was started, or above it"
        elif any((root / name).exists() for name in PROJECT):
            why = "the root of a project"
        if why:
            raise InputError(
                f"{self.folder} is {why}; the studio needs a folder of its own to write to. Choose another, such as "
                f"--output {FOLDER}"
            )
        if root.exists() and not root.is_dir():
            raise InputError(f"{self.folder} is a file; expected a folder to write models to. Choose another --output")
        for path in self.data:
            if not path.exists():
                raise InputError(f"{path}: no such file or folder; --data expects examples that the page may name")

    def output(self, name: str) -> Path:
        """The folder for a new model by the name that the page gives it: below the folder, or InputError."""
        root = self.folder.resolve()
        found = next((path for path in _meanings(name, [self.folder]) if path != root), None)
        if found is None:
            raise InputError(
                f"{name[:80]!r} is not below {self.folder}, where the studio writes. Give a plain name, or restart the "
                "studio with another --output"
            )
        return self.folder / found.relative_to(root)

    def readable(self, name: str) -> Path:
        """A file or folder that the page names, whether it exists or not; InputError where it must not be read."""
        found = _meanings(name, [self.folder, *self.data])
        if not found:
            raise InputError(
                f"{name[:80]}: the page may name files below {self.folder}, and what --data gave. Send the file "
                f"instead, or restart with: regard studio --data {shlex.quote(name[:200])}"
            )
        return next((path for path in found if path.exists()), found[0])

    def check_room(self, size: int) -> None:
        """InputError where an upload of so many bytes would exceed the quota."""
        try:
            with os.scandir(self.folder) as entries:
                sizes = [one.stat().st_size for one in entries if one.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return
        if len(sizes) >= MOST_FILES or sum(sizes) + size > MOST_BYTES:
            raise InputError(
                f"{self.folder} holds {len(sizes):,} files of {sum(sizes):,} bytes; uploads may be {MOST_FILES} files "
                f"of {MOST_BYTES:,} bytes in all. Delete some, or give a path with --data"
            )


def _meanings(name: str, places: Sequence[Path]) -> list[Path]:
    """What a name can mean, links followed, that is one of the places or in one: seen from where the studio was
    started, then from each place."""
    given = Path(os.path.expanduser(name))
    try:
        roots = [place.resolve() for place in places]
        seen = [given.resolve(), *((root / given).resolve() for root in roots if not root.is_file())]
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or links in a circle
        raise InputError(f"{name[:80]!r} cannot be the name of a file") from None
    return [path for path in seen if any(path == root or root in path.parents for root in roots)]
