"""Durable folders: the record, detection of foreign files, and removal of listed files only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints.files import write_folder
from regard.errors import InputError
from regard.files.durable_folder import (
    RECORD,
    DamagedRecord,
    FolderRecord,
    foreign_entries,
    refuse_foreign_content,
    remove_files,
    remove_output,
)
from regard.files.json_files import with_checksum


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink()}


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_a_manifest_round_trip(tmp_path: Path) -> None:
    assert FolderRecord.read(tmp_path) is None
    manifest = FolderRecord("fine-tuning run", ("config.toml",), ("seeds/best/", "seeds/0.json"))
    manifest.write(tmp_path)
    inode = (tmp_path / RECORD).stat().st_ino
    manifest.write(tmp_path)
    assert FolderRecord.read(tmp_path) == manifest and (tmp_path / RECORD).stat().st_ino == inode
    with pytest.raises(InputError, match="holds a fine-tuning run, expected a pretraining run"):
        FolderRecord.read(tmp_path, kind="pretraining run")


@pytest.mark.parametrize(
    "change",
    [
        {"files": ["../x"]},
        {"work": ["/etc/passwd"]},
        {"work": ["a/../../x"]},
        {"work": [3]},
        {"work": None},
        {"files": "ab\0"},
        {"kind": 1},
        {"finished": "no"},
        {"regard": 2},
    ],
    ids=str,
)
def test_invalid_manifest_is_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    FolderRecord("run", ()).write(tmp_path)
    document = json.loads((tmp_path / RECORD).read_text())
    del document["checksum"]
    for changed in (with_checksum(document | change), document, {"name": "regard"}):
        (tmp_path / RECORD).write_text(json.dumps(changed))
        with pytest.raises(InputError, match=r"regard\.json: not a record of this version of Regard") as caught:
            FolderRecord.read(tmp_path)
        assert not isinstance(caught.value, DamagedRecord)


def test_a_damaged_record_is_an_error_of_its_own(tmp_path: Path) -> None:
    FolderRecord("run", ("a.txt",)).write(tmp_path)
    document = json.loads((tmp_path / RECORD).read_text())
    misnamed = {name.replace("checksum", "chfcksum"): value for name, value in document.items()}
    for content in (json.dumps(document | {"kind": "ran"}), json.dumps(misnamed), "[]", "{", ""):
        (tmp_path / RECORD).write_text(content)
        with pytest.raises(DamagedRecord, match=r"regard\.json"):
            FolderRecord.read(tmp_path)


def test_files_of_a_killed_process_are_not_foreign(tmp_path: Path) -> None:
    fill(tmp_path, ".regard.json.123-0123abcd.partial.json", ".best.9-0123abcd.partial/a")
    (tmp_path / "lock").write_text("123\n")
    assert foreign_entries(tmp_path) == [] == foreign_entries(tmp_path / "none")
    refuse_foreign_content(tmp_path)
    (tmp_path / "lock").write_text("my keys")
    with pytest.raises(InputError, match="it holds 'lock', which Regard did not write"):
        refuse_foreign_content(tmp_path)
    fill(tmp_path, "a", "b", "c")
    with pytest.raises(InputError, match="holds 'a', 'b', 'c' and 1 more"):
        refuse_foreign_content(tmp_path)


def test_only_listed_files_are_removed(tmp_path: Path) -> None:
    fill(
        tmp_path, "outside/0.json", "run/seeds/0.json", "run/seeds/1.json", "run/other/a", "run/seeds/steps/step-1/mine"
    )
    write_folder(tmp_path / "run" / "seeds" / "best", tensors={}, files={"config.json": b"{}", "sub/a": b""})
    write_folder(tmp_path / "run" / "seeds" / "steps" / "step-2", tensors={}, files={"state.json": b"{}"})
    write_folder(tmp_path / "outside" / "model", tensors={}, files={"config.json": b"{}"})
    (tmp_path / "run" / "seeds" / "best" / "mine").touch()
    (tmp_path / "run" / "seeds" / ".best.1-0123abcd.partial").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "run" / "seeds" / "2.json").symlink_to(tmp_path / "outside" / "0.json")
    before = tree(tmp_path / "outside")
    entries = [
        "seeds/0.json",
        "seeds/2.json",
        "seeds/best/",
        "seeds/steps/step-*/",
        "link/0.json",
        "link/model/",
        "no/x",
    ]
    assert remove_files(tmp_path / "run", entries)
    assert tree(tmp_path / "outside") == before
    left = {"link", "other/a", "seeds/1.json", "seeds/2.json", "seeds/best/mine", "seeds/steps/step-1/mine"}
    assert tree(tmp_path / "run") == left
    assert sorted(os.listdir(tmp_path / "run" / "seeds")) == ["1.json", "2.json", "best", "steps"]


def test_nothing_is_removed_by_a_damaged_list(tmp_path: Path) -> None:
    write_folder(tmp_path / "model", tensors={}, files={"config.json": b"{}"})
    checksums = tmp_path / "model" / "checksums.json"
    whole = checksums.read_bytes()
    checksums.write_bytes(whole[:-9])
    assert not remove_files(tmp_path, ["model/"]) and (tmp_path / "model" / "config.json").is_file()
    with pytest.raises(InputError, match="does not list it"):
        write_folder(tmp_path / "model", tensors={}, files={"config.json": b"[]"})
    checksums.write_bytes(whole)
    assert remove_files(tmp_path, ["model/"]) and not (tmp_path / "model").exists()


@pytest.mark.parametrize("mine", [[], ["notes.txt", "seeds/mine"]])
def test_complete_output_is_removed(tmp_path: Path, mine: list[str]) -> None:
    folder = tmp_path / "run"
    fill(folder, "config.toml", "seeds/0.json", *mine)
    write_folder(folder, tensors={}, files={"config.json": b"{}", "report.md": b""})
    remove_output(folder)  # without a manifest: nothing
    assert "config.toml" in tree(folder)
    FolderRecord("run", ("config.toml", "lock"), ("seeds/0.json",)).write(folder)
    remove_output(folder)
    assert tree(folder) == set(mine) if mine else not folder.exists()
    remove_output(folder)
