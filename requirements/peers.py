"""Make the environment of a peer of peers.txt: `python requirements/peers.py NAME` installs it into .peers/NAME.

    .peers/pylate/bin/python -c "import pylate"      # what is compared runs there, as a process of its own

Without a NAME: lists the peers and what is installed. The torch is that of cpu-torch.txt if the peer accepts it.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / ".peers"
TORCH = HERE / "cpu-torch.txt"


def peers() -> dict[str, str]:
    """The requirement of every peer, by its name."""
    lines = (HERE / "peers.txt").read_text(encoding="utf-8").splitlines()
    return {line.split("==")[0].partition("[")[0]: line for line in lines if line and not line.startswith("#")}


def python_of(name: str) -> Path:
    return FOLDER / name / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def install(name: str) -> Path:
    """Returns the Python of the environment; a finished one stays as it is."""
    requirement, stamp = peers()[name], FOLDER / name / "installed.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == requirement:
        return python_of(name)
    venv.create(FOLDER / name, with_pip=True, clear=True)
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    if subprocess.run([*pip, "-c", str(TORCH)], check=False).returncode != 0:
        print(f"{requirement} with its own torch ...", file=sys.stderr)
        subprocess.run(pip, check=True)
    stamp.write_text(requirement, encoding="utf-8")
    return python_of(name)


def main(names: list[str]) -> None:
    if unknown := [name for name in names if name not in peers()]:
        sys.exit(f"error: {unknown[0]} is not in {HERE / 'peers.txt'}, which has {', '.join(peers())}")
    for name in names:
        print(install(name))
    if not names:
        for name, requirement in peers().items():
            print(requirement, "installed" if (FOLDER / name / "installed.txt").is_file() else "")


if __name__ == "__main__":
    main(sys.argv[1:])
