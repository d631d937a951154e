"""Single output files: nothing is replaced that Regard did not write, and no link is followed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.files.disk import replace_file
from regard.files.output_file import check_output_file, record_path, replace_output

MARKED = {
    ".html": b'<!doctype html>\n<meta name="generator" content="Regard">',
    ".svg": b'<svg data-generator="Regard"/>',
    ".png": b"\x89PNG\r\n\x1a\n....tEXtSoftware\0Regard",
    ".json": b'{"generator": "Regard", "rows": 1}',
}


def write(path: Path, content: bytes, *, force: bool = False) -> None:
    with replace_output(path, force=force) as temporary:
        temporary.write_bytes(content)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".txt", ".npy", *MARKED])
def test_a_file_of_ours_is_replaced_and_another_is_not(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    contents = [MARKED.get(suffix, b"") + more for more in (b"first", b"second")]
    for content in contents:
        write(path, content)
        assert path.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == sorted({path.name, *([] if suffix in MARKED else [record_path(path).name])})
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match=rf"out{suffix}.*--force"):
        write(path, contents[0])
    assert path.read_bytes() == b"mine"
    write(path, contents[0], force=True)
    write(path, contents[1])
    assert path.read_bytes() == contents[1]


def test_a_file_without_a_record_is_refused_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "thesis.npy"
    path.write_bytes(b"years of work")
    with pytest.raises(InputError, match="Regard did not write it"):
        check_output_file(path)
    check_output_file(path, force=True)
    check_output_file(tmp_path / "new.npy")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_refused_and_a_linked_folder_is_not(tmp_path: Path, force: bool, dangling: bool) -> None:
    if not dangling:
        (tmp_path / "system").write_bytes(b"precious")
    (tmp_path / "out.csv").symlink_to(tmp_path / "system")
    with pytest.raises(InputError, match=r"out.csv is a symbolic link"):
        write(tmp_path / "out.csv", b"new", force=force)
    assert dangling or (tmp_path / "system").read_bytes() == b"precious"
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    write(tmp_path / "linked" / "out.csv", b"new", force=force)
    assert (tmp_path / "real" / "out.csv").read_bytes() == b"new"


@pytest.mark.parametrize("content", [b"{}", b"", b'{"sha256": 1}', b'["no", "record"]'])
def test_a_record_that_is_none_proves_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b"mine")
    record_path(path).write_bytes(content)
    with pytest.raises(InputError, match="--force"):
        write(path, b"new")
    assert path.read_bytes() == b"mine"


def test_a_save_that_ends_between_record_and_file_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    write(path, b"first")
    rename = os.replace

    def fail(source: str, target: str) -> None:
        if Path(target).name == path.name:
            raise OSError(5, "Input/output error")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(Exception, match="previous content is unchanged"):
            write(path, b"second")
    assert path.read_bytes() == b"first"
    write(path, b"third")
    assert path.read_bytes() == b"third" and json.loads(record_path(path).read_bytes())["bytes"] == 5


def test_a_failure_leaves_file_and_record(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write(path, b"first")
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    with pytest.raises(ZeroDivisionError), replace_output(path) as temporary:
        temporary.write_bytes(b"half")
        raise ZeroDivisionError
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
    with replace_file(tmp_path / "other") as temporary:  # internal files need no record
        temporary.write_bytes(b"x")
    assert not record_path(tmp_path / "other").exists()
