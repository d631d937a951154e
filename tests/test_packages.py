"""The distributions: below PyPI's limit, and every built-in model in exactly one of them."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

import regard.known as known

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 100_000_000  # bytes of a file, without asking PyPI for more


def build(builder: str, root: Path, output: Path) -> Path:
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    chosen = WheelBuilder if builder == "wheel" else SdistBuilder
    (path,) = chosen(str(root)).build(directory=str(output), versions=["standard"])
    return Path(path)


@pytest.mark.long
def test_the_wheels_are_small_enough_and_have_every_built_in_model_once(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    models = {folder.name for folder in (ROOT / "src" / "regard" / "builtin").iterdir() if folder.is_dir()}
    assert models <= known.BUILT_IN.keys()
    found: dict[str, set[str]] = {}
    for root, package in ((ROOT, "regard/builtin/"), (ROOT / "packages" / "models", "regard_models/")):
        wheel = build("wheel", root, tmp_path)
        assert wheel.stat().st_size < LIMIT, f"{wheel.name} has {wheel.stat().st_size:,} bytes"
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            licenses = [archive.read(name) for name in names if ".dist-info/licenses/" in name]
        assert licenses == [(ROOT / "LICENSE").read_bytes()]
        found[package] = {name.removeprefix(package).split("/")[0] for name in names if name.startswith(package)}
        for model in found[package] & models:
            files = {str(file.relative_to(folder)) for folder in [ROOT / "src/regard/builtin" / model]
                     for file in folder.rglob("*") if file.is_file()}  # fmt: skip
            assert {f"{package}{model}/{file}" for file in files} <= set(names)
        assert ("regard/py.typed" in names) == (root == ROOT)
    first, second = found["regard/builtin/"], found["regard_models/"] - {"__init__.py"}
    assert not first & second and first | second == models
    assert known.DEFAULT_MODEL in first and known.DEFAULT_EMBEDDING_MODEL in first


@pytest.mark.long
def test_the_source_archive_is_small_enough(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    archive = build("sdist", ROOT, tmp_path)
    assert archive.stat().st_size < LIMIT, f"{archive.name} has {archive.stat().st_size:,} bytes"
    with tarfile.open(archive) as file:
        names = file.getnames()
    assert any(name.endswith("src/regard/builtin/regard-bert/model.safetensors") for name in names)
    assert not any("/regard-gpt/" in name for name in names)


def test_models_of_the_second_package_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "regard-gpt").mkdir()
    (tmp_path / "regard-gpt" / "config.json").write_text("{}")
    monkeypatch.setattr(known, "_roots", lambda: [tmp_path / "first", tmp_path])
    assert known.builtin_names() == ["regard-gpt"] and known.builtin_folder("regard-gpt") == tmp_path / "regard-gpt"
    assert known.is_builtin(tmp_path / "regard-gpt" / "tokenizer.json") and not known.is_builtin(tmp_path / "..")


def test_a_model_that_is_not_installed_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.checkpoints.loading import find_folder
    from regard.errors import InputError
    from regard.tasks.fine_tuned_model import require_fine_tuned

    monkeypatch.setattr(known, "_roots", lambda: [tmp_path])
    for name in ("regard-gpt", "regard-de-en"):
        with pytest.raises(InputError, match=r'not installed: pip install "regard\[models\]"'):
            find_folder(name)
    with pytest.raises(InputError, match="no built-in model"):
        find_folder("regard-bert")
    with pytest.raises(InputError, match=r'pip install "regard\[models\]"'):
        require_fine_tuned("regard-toxic")
