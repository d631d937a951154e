"""Write run.txt and dev.txt: the packages that are installed here, with the hashes of all their files.

    python requirements/pin.py ADDRESS     # of a package index, such as the one pip is set up with

The versions are those of the environment that runs this, so install and test first. The hashes are those the index
has for every file of a version (wheels for CPython 3.11 and newer, source archives), so the lists hold for all systems.
No address is written. Packages of the dependency group packaged-models are listed without what they
require. torch is left out: which file it is depends on the index (with CUDA or without), and
cpu-torch.txt has its version. Knows pip's file of requirements and the HTML of an index; knows nothing of Regard.
"""

from __future__ import annotations

import re
import sys
import tomllib
import urllib.request
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_sdist_filename, parse_wheel_filename

HERE = Path(__file__).resolve().parent
BUILD = ("hatchling", "editables")  # pyproject.toml's build backend, and what it needs for an editable install
LEFT_OUT = {"regard", "torch"}
LINK = re.compile(r'<a [^>]*href="[^"#]*#sha256=([0-9a-f]{64})"[^>]*>\s*([^<\s]+)\s*</a>')
HEAD = "# Written by pin.py. pip installs these files and no others: --require-hashes --no-deps -r {name}\n"


def closure(name: str, extras: frozenset[str], found: dict[str, str], seen: set[tuple[str, str]]) -> dict[str, str]:
    """The versions of a package and of all it needs, as installed."""
    package = metadata.distribution(name)
    found[canonicalize_name(name)] = package.version
    for text in package.requires or []:
        needed = Requirement(text)
        if needed.marker is not None and not any(needed.marker.evaluate({"extra": one}) for one in {*extras, ""}):
            continue
        key = canonicalize_name(needed.name), ",".join(sorted(needed.extras))
        if key not in seen:
            seen.add(key)
            closure(key[0], frozenset(needed.extras), found, seen)
    return found


def hashes(name: str, version: str, index: str) -> list[str]:
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as answer:
        page = answer.read().decode("utf-8")
    found = sorted({digest for digest, file in LINK.findall(page) if serves(file, version)})
    if not found:
        sys.exit(f"{name} {version}: the index has no file with a hash; install a version that it has")
    return found


def serves(file: str, version: str) -> bool:
    """Whether a file is of this version and for a Python that Regard runs on."""
    try:
        if file.endswith(".whl"):
            _, other, _, tags = parse_wheel_filename(file)
            pythons = {tag.interpreter for tag in tags}
            stable = any(
                tag.abi == "abi3" or (tag.interpreter.startswith("py") and tag.interpreter != "py2") for tag in tags
            )
            return str(other) == version and (stable or any(re.fullmatch(r"cp31[1-9]", python) for python in pythons))
        return file.endswith(".tar.gz") and str(parse_sdist_filename(file)[1]) == version
    except (InvalidWheelFilename, ValueError):
        return False


def write(file: str, versions: dict[str, str], index: str, *, above: str = "") -> None:
    lines = [HEAD.format(name=f"requirements/{file}"), above]
    for name, version in sorted(versions.items()):
        digests = "".join(f" \\\n    --hash=sha256:{digest}" for digest in hashes(name, version, index))
        lines.append(f"{name}=={version}{digests}\n")
    (HERE / file).write_text("".join(lines), encoding="utf-8")


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit(__doc__)
    (index,) = arguments
    run, dev = versions(frozenset()), versions(frozenset({"dev", "checkpoints"}))
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    for requirement in map(Requirement, project["dependency-groups"]["packaged-models"]):
        dev[canonicalize_name(requirement.name)] = metadata.version(requirement.name)
    write("run.txt", run, index)
    write("dev.txt", {name: version for name, version in dev.items() if name not in run}, index, above="-r run.txt\n")


def versions(extras: frozenset[str]) -> dict[str, str]:
    """Of all that Regard with these extras needs to be built and to run, but torch."""
    found: dict[str, str] = {}
    for name in ("regard", *BUILD):
        closure(name, extras if name == "regard" else frozenset(), found, set())
    return {name: version for name, version in found.items() if name not in LEFT_OUT}


if __name__ == "__main__":
    main(sys.argv[1:])
