"""Pictures: a folder for each class, a folder of images, one image, or MNIST's IDX files.

Image files need Pillow, IDX files nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path as File
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from regard.data.examples import ImageExample
from regard.data.files import COMPRESSED_SUFFIXES, STANDARD_INPUT, display_name, read_all_bytes
from regard.data.readers.read import ExampleSet, Path
from regard.errors import InputError
from regard.files.file_input import open_file

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["holds_images", "read_image_examples"]

Pixels = npt.NDArray[np.uint8]

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
_TASK_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")  # taken for images where text is possible too
_OTHER = "not an image by its name"
_LOOSE = "image in no class's folder"


def holds_images(path: Path) -> bool:
    """Whether a path is a folder, an image or an IDX file by its name; other files hold text."""
    name = os.fspath(path).lower()
    return os.path.isdir(path) or name.endswith(_TASK_SUFFIXES) or ("idx" in name and "ubyte" in name)


def read_image_examples(
    path: Path, *, labels: Path | None = None, labeled: bool | None = None
) -> ExampleSet[ImageExample]:
    """Pictures of a folder whose folders are the classes, of a folder without any, of one image, or of an IDX file.

    An IDX file's labels are in `labels`, or in the file beside it whose name has "labels" for "images", as MNIST's do.
    `labeled`: True makes it an error if there are none, False leaves them alone, None takes them if they are there.
    """
    file = File(path)
    if os.fspath(path) != STANDARD_INPUT and file.is_dir():
        if labels is not None:
            raise InputError(f"{path} is a folder, in which folders are the labels; leave {labels} out")
        return _from_folder(file, labeled)
    if file.suffix.lower() in _SUFFIXES:
        if labeled:
            raise InputError(f"{path} is one image without a label; expected a folder with one folder for each class")
        return ExampleSet(
            [ImageExample(_open(file), None, os.fspath(file))], display_name(path), "one image", {}, [1], "picture"
        )
    return _from_idx(path, labels, labeled)


def _from_folder(folder: File, labeled: bool | None) -> ExampleSet[ImageExample]:
    folders = sorted(entry for entry in _visible(folder) if entry.is_dir())
    classes = {} if labeled is False else {entry: images for entry in folders if (images := _images(entry))}
    loose = sorted(_below(folder)) if labeled is False else _images(folder)
    if not classes and (labeled or not loose):
        inside = f" or another folder, such as {folders[0]}" if folders else ""
        raise InputError(f"{folder} holds no folder with images; expected one folder for each class{inside}")
    if not classes:
        pictures = [_picture(file, None, folder) for file in loose]
        return _numbered(pictures, folder, "image folder, no classes", {_OTHER: _others(folder)})
    pictures = [_picture(file, entry.name, folder) for entry, images in classes.items() for file in images]
    how = f"image folder, {len(classes)} classes: {_listed([entry.name for entry in classes])}"
    others = sum(map(_others, [folder, *classes]))
    return _numbered(pictures, folder, how, {_OTHER: others, _LOOSE: len(loose)})


def _numbered(pictures: list[ImageExample], path: Path, how: str, dropped: dict[str, int]) -> ExampleSet[ImageExample]:
    counted = {reason: count for reason, count in dropped.items() if count}
    return ExampleSet(pictures, display_name(path), how, counted, list(range(1, len(pictures) + 1)), "picture")


def _picture(file: File, label: str | None, folder: File) -> ImageExample:
    return ImageExample(_open(file), label, str(file.relative_to(folder)))


def _others(folder: File) -> int:
    return sum(entry.is_file() and entry.suffix.lower() not in _SUFFIXES for entry in _visible(folder))


def _listed(names: list[str]) -> str:
    return ", ".join(names if len(names) <= 10 else [*names[:9], "…", names[-1]])


def _visible(folder: File) -> Iterator[File]:
    return (entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _images(folder: File) -> list[File]:
    return sorted(entry for entry in _visible(folder) if entry.is_file() and entry.suffix.lower() in _SUFFIXES)


def _below(folder: File) -> Iterator[File]:
    yield from _images(folder)
    for entry in _visible(folder):
        if entry.is_dir() and not entry.is_symlink():
            yield from _below(entry)


def _open(file: File) -> Pixels:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise InputError(f"{file} is an image, which needs Pillow: pip install 'regard[images]'") from None
    try:
        with open_file(file) as opened, Image.open(opened) as image:
            return _pixels(ImageOps.exif_transpose(image))
    except InputError:
        raise
    # Pillow's decoders raise what they like on damaged files, and refuse a picture too large to be meant.
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise InputError(f"{file} cannot be read as an image ({error}); remove it or save it again") from None


def _pixels(image: Image) -> Pixels:
    from PIL import Image as module

    if image.mode in ("I;16", "I;16B", "I;16L", "I"):  # 16 bits of grey
        return (np.clip(np.asarray(image, dtype=np.int64), 0, 65535) // 257).astype(np.uint8)
    if image.mode in ("1", "L"):
        return np.array(image.convert("L"), dtype=np.uint8)
    if "A" in image.getbands() or "transparency" in image.info:  # what shines through is white, as on a page
        layers = image.convert("RGBA")
        image = module.alpha_composite(module.new("RGBA", layers.size, "white"), layers)
    return np.array(image.convert("RGB"), dtype=np.uint8)


def _from_idx(path: Path, labels: Path | None, labeled: bool | None) -> ExampleSet[ImageExample]:
    name = display_name(path)
    pixels = _idx(path)
    if pixels.ndim != 3 and not (pixels.ndim == 4 and pixels.shape[-1] == 3):
        shape = " x ".join(map(str, pixels.shape))
        raise InputError(f"{name} holds {shape} bytes, expected pictures: count x height x width, perhaps x 3")
    if not len(pixels):
        raise InputError(f"{name} holds no picture: expected at least one")
    beside = None if labeled is False else labels if labels is not None else _beside(path)
    if labeled and beside is None:
        raise InputError(f"{name}: no labels beside it, and this needs them; expected them in {_label_name(path)}")
    values = None if beside is None else _idx(beside)
    if values is not None and values.shape != (len(pixels),):
        held = " x ".join(map(str, values.shape))
        raise InputError(
            f"{display_name(beside or '')} holds {held} labels for {len(pixels)} pictures; expected one for each"
        )
    texts = [None] * len(pixels) if values is None else [str(value) for value in values.tolist()]
    pictures = [
        ImageExample(image, label, str(place)) for place, (image, label) in enumerate(zip(pixels, texts, strict=True))
    ]
    size = " x ".join(map(str, pixels.shape[1:]))
    how = f"IDX, {size}, " + ("no labels" if beside is None else f"labels in {File(beside).name}")
    return _numbered(pictures, path, how, {})


def _label_name(path: Path) -> str:
    return File(path).name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")


def _beside(path: Path) -> File | None:
    if os.fspath(path) == STANDARD_INPUT or "images" not in File(path).name:
        return None
    wanted = File(path).with_name(_label_name(path))
    plain = wanted.with_suffix("") if wanted.suffix in COMPRESSED_SUFFIXES else wanted
    return next((file for file in (wanted, plain, plain.with_name(plain.name + ".gz")) if file.is_file()), None)


def _idx(path: Path) -> Pixels:
    """IDX: two zero bytes, 8 for bytes, the number of dimensions, each as four bytes, then the values."""
    name = display_name(path)
    content = read_all_bytes(path)
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise InputError(
            f"{name} is no IDX file of bytes, and no image by its name ({', '.join(sorted(_SUFFIXES))}); "
            "expected one of these or a folder with one folder for each class"
        )
    start = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4))
    size = math.prod(shape)
    if len(content) != start + size:
        raise InputError(f"{name} should have {start + size} bytes by its header, got {len(content)}: copy it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
