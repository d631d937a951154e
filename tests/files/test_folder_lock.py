"""Folder locks: one process at a time, and descriptions of changed settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regard.errors import InputError, RegardError
from regard.files.durable_folder import LOCK, describe_changes, lock_folder


def test_changes_are_described() -> None:
    assert describe_changes({"a": 1, "b": 2}, {"a": 1, "b": 2}) == []
    assert describe_changes({"b": 2, "a": 1}, {"b": 3, "c": None}) == ["a was 1 and is None", "b was 2 and is 3"]


def test_second_lock_is_rejected(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "work"):
        assert (tmp_path / "work" / LOCK).read_text() == f"{os.getpid()}\n"
        with pytest.raises(InputError, match=f"in use by process {os.getpid()}"), lock_folder(tmp_path / "work"):
            pass
    with lock_folder(tmp_path / "work"):
        pass


def test_read_only_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RegardError, match="cannot be written"), lock_folder(tmp_path / "file"):
        pass
