"""Reads the one image that a Vision Transformer reads: a file, an example image by its name, or uploaded bytes."""

from __future__ import annotations

import io
import os
import warnings
from importlib.util import find_spec
from pathlib import Path

from regard.data.example_images import example_images, image_file
from regard.data.examples import ImageExample
from regard.data.readers.images import read_image_examples
from regard.errors import InputError

UPLOAD_FORMATS = ("PNG", "JPEG")
MAX_PIXELS = 50_000_000  # a model reads a few thousand of them


def read_image(path: str | os.PathLike[str]) -> ImageExample:
    """Read an image file that holds one image, or an example image by its name."""
    file = image_file(path)
    if not file.is_file():
        names = ", ".join(example_images())
        raise InputError(f"{os.fspath(path)}: no such file; expected an image file, or one of the examples {names}")
    if find_spec("PIL"):  # IDX files do not need it
        _image_format(file, os.fspath(path))
    images = read_image_examples(path, labeled=False).examples
    if len(images) != 1:
        raise InputError(f"{os.fspath(path)} holds {len(images):,} images; expected an image file with one")
    return images[0]


def check_image(content: bytes, name: str) -> None:
    """Raise InputError for uploads in other formats than PNG and JPEG, and with too many pixels, by the header alone.

    `name` is the file name on the sender's side.
    """
    image_format = _image_format(io.BytesIO(content), name)
    if image_format not in UPLOAD_FORMATS:
        raise InputError(f"{name} is {image_format or 'no image'}; expected a PNG or JPEG file")


def _image_format(source: Path | io.BytesIO, name: str) -> str:
    """Return Pillow's name of the format, "" if it is no image; raise InputError for too many pixels."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError(f"{name} is an image, which needs Pillow: pip install 'regard[images]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # reported below as an InputError
            with Image.open(source) as image:
                image_format, (width, height) = image.format or "", image.size
    except Image.DecompressionBombError:
        raise InputError(f"{name} has too many pixels; expected at most {MAX_PIXELS:,}. Make it smaller") from None
    except (OSError, ValueError, SyntaxError, EOFError):
        return ""
    if width * height > MAX_PIXELS:
        raise InputError(f"{name} has {width:,} x {height:,} pixels; expected at most {MAX_PIXELS:,}. Make it smaller")
    return image_format
