"""The temporary folder of a server: what is written for clients is in it, and it is removed when the server ends.

A server that was killed leaves its folder; the next one removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import RegardError
from regard.files.durable_folder import LOCK, lock_folder

PREFIX = "regard-server-"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Let this process and those that it starts for models write temporary files to a folder of its own."""
    before = tempfile.tempdir
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with lock_folder(folder):
            tempfile.tempdir = str(folder)
            yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of this user's servers that no longer run. A server that runs holds the lock of its folder;
    one without a process in its lock is none, or is about to be locked."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, RegardError):  # in use, or removed meanwhile
            status = folder.lstat()
            ours = hasattr(os, "getuid") and status.st_uid == os.getuid() and not folder.is_symlink()
            if ours and (folder / LOCK).lstat().st_size:
                with lock_folder(folder):
                    shutil.rmtree(folder)
