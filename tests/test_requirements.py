"""The requirements files with hashes: complete, within the bounds of pyproject.toml, without URLs, and enforced."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import missing

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
RUN, DEV = ((ROOT / "requirements" / name).read_text(encoding="utf-8") for name in ("run.txt", "dev.txt"))


def pins(text: str) -> dict[str, str]:
    return {name: version for name, version, _ in PIN.findall(text)}


def test_every_line_is_a_version_with_hashes() -> None:
    for text in (RUN, DEV):
        rest = [line for line in PIN.sub("", text).splitlines() if line and not line.startswith(("#", "-r run.txt"))]
        assert rest == [] and "://" not in text
    assert not pins(RUN).keys() & pins(DEV).keys()


@pytest.mark.parametrize("extras", [(), ("dev", "data", "images", "checkpoints")])
def test_every_requirement_of_pyproject_is_listed(extras: tuple[str, ...]) -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = about["project"]
    listed = pins(RUN) | (pins(DEV) if extras else {})
    wanted = [*about["build-system"]["requires"], *project["dependencies"]]
    wanted += [line for extra in extras for line in project["optional-dependencies"][extra]]
    wanted += about["dependency-groups"]["packaged-models"] if extras else []
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name not in ("torch", "regard"):
            assert requirement.specifier.contains(listed[name]), f"{requirement} and {listed[name]}"
    assert "torch" not in listed


@pytest.mark.parametrize("right", [True, False])
def test_a_file_with_a_wrong_hash_is_rejected(right: bool, tmp_path: Path) -> None:
    """Installs as the Makefile does, from a wheel in a folder, so that no index is needed."""
    if find_spec("pip") is None:
        missing("this environment has no pip")
    wheel = tmp_path / "small_of_regard-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        folder = "small_of_regard-1.dist-info"
        archive.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\nName: small-of-regard\nVersion: 1\n")
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes() if right else b"other").hexdigest()
    (tmp_path / "list.txt").write_text(f"small-of-regard==1 --hash=sha256:{digest}\n")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (options,) = re.findall(r"python -m pip install (.*) -r requirements/\$\(1\)\.txt", makefile)
    command = [sys.executable, "-m", "pip", "install", *options.split(), "--target", str(tmp_path / "there")]
    command += ["--no-index", "--find-links", str(tmp_path), "-r", str(tmp_path / "list.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode == 0) is right, done.stderr
    assert (tmp_path / "there").is_dir() is right
    assert right or "hash" in done.stderr.lower()
