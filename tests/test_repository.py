"""What a clone holds besides code: hosted checks, hooks, templates and pages, against the files that they name."""

from __future__ import annotations

import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SOURCES = ROOT / "src" / "regard"
PACKAGES = sorted(path.parent.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("__init__.py"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_hosted_checks_call_targets_of_the_makefile(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    called: set[str] = set()
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] and job["runs-on"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            for variables, target in re.findall(r"(.*)\bmake ([a-z-]+)", step.get("run", "")):
                called.add(target)
                # The hosted service sets CI=true, with which data sets outside of the repository must be there.
                assert not target.startswith("test") or "CI=false " in variables
    assert called and called <= TARGETS


def test_hosted_tests_cover_every_system_and_python() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["system"]} == {"ubuntu", "macos", "windows"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert matrix["python"][0] == project["requires-python"].removeprefix(">=")
    assert matrix["python"] == [f"3.{minor}" for minor in range(11, 15)]


def test_hooks_and_templates_are_complete() -> None:
    hooks = [hook for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    for hook, text in product(hooks, ("id", "name", "entry")):
        assert hook[text], hook
    scripts = {word for hook in hooks for word in hook["entry"].split() if word.endswith(".py")}
    assert scripts and all((ROOT / script).is_file() for script in scripts)
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = read(path)
        assert form["name"] and form["description"]
        assert len({part["id"] for part in form["body"]}) == len(form["body"])


def test_the_citation_has_the_version_and_license_of_the_package() -> None:
    citation = read(ROOT / "CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {name: citation[name] for name in ("version", "license")} == {
        name: project[name] for name in ("version", "license")
    }
    assert citation["authors"] and citation["cff-version"] == "1.2.0"


def test_make_help_names_the_tiers() -> None:
    for target in ("test-fast", "test", "test-all", "check"):
        assert target in TARGETS and re.search(rf'@echo "make {target} ', MAKEFILE)


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "."])
def test_the_architecture_names_every_package(package: str) -> None:
    assert f"`{package}`" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_architecture_has_the_layers_in_their_order() -> None:
    text = " ".join((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split())
    named = re.findall(r"`(\w+)`(?: <|\.)", text[text.index("Layers, bottom up") : text.index("Every package")])
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [name.strip("()") for name in settings["contracts"][0]["layers"]]
    assert named == [name for name in reversed(layers) if (SOURCES / name / "__init__.py").is_file()]


def test_the_changelog_is_one_page() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 80
