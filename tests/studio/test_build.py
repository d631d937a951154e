"""How the page is built: from what, when again, and what is said where it cannot be."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def build(tmp_path: Path) -> ModuleType:
    """web/build.py over a folder of its own."""
    description = importlib.util.spec_from_file_location("web_build", ROOT / "web" / "build.py")
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    module.WEB, module.STATIC = tmp_path / "web", tmp_path / "static"
    (tmp_path / "web" / "src").mkdir(parents=True)
    (tmp_path / "static").mkdir()
    for name in ("package.json", "tsconfig.json", "vite.config.mjs", "src/main.tsx"):
        (tmp_path / "web" / name).write_text(name, encoding="utf-8")
    return module


def fake_run(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    commands: list[str] = []

    def run(command: list[str], environment: dict[str, str]) -> None:
        commands.append(Path(command[1]).name)
        if command[1].endswith("vite.js"):
            for name in ("bundle.js", "bundle.css"):
                (Path(command[-1]) / name).write_text("", encoding="utf-8")

    monkeypatch.setattr(build, "_run", run)
    monkeypatch.setattr(build, "_version", lambda node: (20, 19))
    monkeypatch.setattr(build.shutil, "which", lambda name, path=None: f"/somewhere/{name}")
    return commands


def test_it_builds_once_and_again_when_a_source_has_changed(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_run(build, monkeypatch)
    assert build.build(quiet=True) and commands == ["install", "vite.js"]
    assert not build.build(quiet=True) and commands == ["install", "vite.js"]
    (build.WEB / "src" / "new.ts").write_text("", encoding="utf-8")
    assert build.build(quiet=True) and len(commands) == 4
    (build.STATIC / "bundle.css").unlink()
    assert build.build(quiet=True) and not build.build(quiet=True)
    assert build.build(force=True, quiet=True)


def test_where_there_is_no_node_and_no_index_it_says_so(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(build, "WHEEL", "no-such-package-of-regard>=9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(build.CannotBuild, match=r"no Node\.js 20\.19 or newer with npm here"):
        build.build(quiet=True)
    assert list(build.STATIC.iterdir()) == []


def test_a_failed_build_tells_its_last_words(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(build.CannotBuild, match="broken here"):
        build._run(["sh", "-c", "echo broken here >&2; exit 1"], {})


def test_versions_are_exact_and_no_lock_file_names_a_registry() -> None:
    package = json.loads((ROOT / "web" / "package.json").read_text(encoding="utf-8"))
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values()), versions
    assert not (ROOT / "web" / "package-lock.json").exists()
