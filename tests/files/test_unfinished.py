"""Work that was cut short: one process at a time, and differences in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regard.errors import InputError, RegardError
from regard.files.unfinished import LOCK, changes, locked


def test_changes() -> None:
    assert changes({"a": 1, "b": 2}, {"a": 1, "b": 2}) == []
    assert changes({"b": 2, "a": 1}, {"b": 3, "c": None}) == ["a was 1 and is None", "b was 2 and is 3"]


def test_one_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path / "work"):
        assert (tmp_path / "work" / LOCK).read_text() == f"{os.getpid()}\n"
        with pytest.raises(InputError, match=f"in use by process {os.getpid()}"), locked(tmp_path / "work"):
            pass
    with locked(tmp_path / "work"):
        pass


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RegardError, match="cannot be written"), locked(tmp_path / "file"):
        pass
