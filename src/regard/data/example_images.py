"""The images that come with Regard, by name: handwritten digits of MNIST (images/SOURCE.txt has their license)."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("images")


@cache
def example_images() -> dict[str, Path]:
    """The file of each example image: digit-0 to digit-9, and digits that are hard to tell apart."""
    return {file.stem: file for file in sorted(FOLDER.glob("*.png"), key=lambda file: file.stem)}


def image_file(path: str | os.PathLike[str]) -> Path:
    """The file of an image: `path` itself or, if there is no such file, the example image of this name."""
    file = Path(path)
    return file if file.exists() else example_images().get(os.fspath(path), file)
