"""Reads images: one folder per class, a folder of images, a single image, or IDX files as in MNIST.

Image files need Pillow; IDX files need no further package.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from pathlib import Path as File
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from regard.data.example_images import image_file
from regard.data.examples import ImageExample
from regard.data.files import (
    COMPRESSED_SUFFIXES,
    ROW_SUFFIXES,
    STANDARD_INPUT,
    content_suffix,
    display_name,
    read_all_bytes,
)
from regard.data.readers.records import ExampleSet, Path
from regard.data.readers.tables import INFERRED, TableOptions
from regard.errors import InputError
from regard.files.file_input import open_file

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
_TASK_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")  # images where texts are possible too
_OTHER = "file without the suffix of an image"
_LOOSE = "image outside of the class folders"


def holds_images(path: Path) -> bool:
    """Return whether a path is a folder that is not one of texts, or has the name of an image or an IDX file."""
    name = os.fspath(path).lower()
    if os.path.isdir(path):
        return not _holds_texts(File(path))
    return name.endswith(_TASK_SUFFIXES) or ("idx" in name and "ubyte" in name)


def _holds_texts(folder: File) -> bool:
    """Return whether all files of a folder have the suffix of a text or a table, and there are no folders in it."""
    entries = list(_visible(folder))
    return bool(entries) and all(entry.is_file() and content_suffix(entry) in ROW_SUFFIXES for entry in entries)


def read_image_examples(
    path: Path, options: TableOptions = INFERRED, *, labeled: bool | None = None
) -> ExampleSet[ImageExample]:
    """Read a folder with one folder per class, a folder of images, a single image, or an IDX file.

    A single image may also be an example image by its name, such as digit-7.

    The labels of an IDX file are in the file next to it with "labels" instead of "images" in its name, as in MNIST.
    `labeled`: True raises an error if there are no labels, False ignores labels, None reads them if there
    are any.
    """
    if not options.infers_format:
        raise InputError(f"{path} holds images, which have no columns; leave out --columns and other table options")
    file = image_file(path)
    if os.fspath(path) != STANDARD_INPUT and file.is_dir():
        return _from_folder(file, labeled)
    if file.suffix.lower() in _SUFFIXES:
        if labeled:
            raise InputError(f"{path} is one image without a label; expected a folder with one folder per class")
        image = ImageExample(read_pixels(file), None, os.fspath(path))
        return ExampleSet([image], display_name(path), "one image", {}, [1], "image")
    return _from_idx(path, labeled)


def _from_folder(folder: File, labeled: bool | None) -> ExampleSet[ImageExample]:
    folders = sorted(entry for entry in _visible(folder) if entry.is_dir())
    classes = {} if labeled is False else {entry: images for entry in folders if (images := _images(entry))}
    loose = sorted(_below(folder)) if labeled is False else _images(folder)
    if not classes and (labeled or not loose):
        inside = f" or another folder, such as {folders[0]}" if folders else ""
        raise InputError(f"{folder} has no folder with images; expected one folder per class{inside}")
    if not classes:
        examples = [_example(file, None, folder) for file in loose]
        return _example_set(examples, folder, "image folder, no classes", {_OTHER: _count_others(folder)})
    examples = [_example(file, entry.name, folder) for entry, images in classes.items() for file in images]
    names = [entry.name for entry in classes]
    listed = ", ".join(names if len(names) <= 10 else [*names[:9], "…", names[-1]])
    description = f"image folder, {len(classes)} classes: {listed}"
    others = sum(map(_count_others, [folder, *classes]))
    return _example_set(examples, folder, description, {_OTHER: others, _LOOSE: len(loose)})


def _example_set(
    examples: list[ImageExample], path: Path, description: str, dropped: dict[str, int]
) -> ExampleSet[ImageExample]:
    dropped = {reason: count for reason, count in dropped.items() if count}
    return ExampleSet(examples, display_name(path), description, dropped, list(range(1, len(examples) + 1)), "image")


def _example(file: File, label: str | None, folder: File) -> ImageExample:
    return ImageExample(read_pixels(file), label, str(file.relative_to(folder)))


def _count_others(folder: File) -> int:
    return sum(entry.is_file() and entry.suffix.lower() not in _SUFFIXES for entry in _visible(folder))


def _visible(folder: File) -> Iterator[File]:
    return (entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _images(folder: File) -> list[File]:
    return sorted(entry for entry in _visible(folder) if entry.is_file() and entry.suffix.lower() in _SUFFIXES)


def _below(folder: File) -> Iterator[File]:
    yield from _images(folder)
    for entry in _visible(folder):
        if entry.is_dir() and not entry.is_symlink():
            yield from _below(entry)


def read_pixels(file: File, content: bytes | None = None) -> Pixels:
    """Decode an image file, or `content` under its name."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise InputError(f"{file} is an image, which needs Pillow: pip install 'regard[images]'") from None
    try:
        with open_file(file) if content is None else io.BytesIO(content) as opened, Image.open(opened) as image:
            return _pixels(ImageOps.exif_transpose(image))
    except InputError:
        raise
    # Pillow's decoders raise various errors for damaged files, and refuse extremely large images.
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise InputError(f"{file} cannot be read as an image ({error}); remove it or save it again") from None


def _pixels(image: Image) -> Pixels:
    from PIL import Image as module

    if image.mode in ("I;16", "I;16B", "I;16L", "I"):  # 16-bit gray
        return (np.clip(np.asarray(image, dtype=np.int64), 0, 65535) // 257).astype(np.uint8)
    if image.mode in ("1", "L"):
        return np.array(image.convert("L"), dtype=np.uint8)
    if "A" in image.getbands() or "transparency" in image.info:  # use a white background
        layers = image.convert("RGBA")
        image = module.alpha_composite(module.new("RGBA", layers.size, "white"), layers)
    return np.array(image.convert("RGB"), dtype=np.uint8)


def _from_idx(path: Path, labeled: bool | None) -> ExampleSet[ImageExample]:
    name = display_name(path)
    pixels = _idx(path)
    if pixels.ndim != 3 and not (pixels.ndim == 4 and pixels.shape[-1] == 3):
        shape = " x ".join(map(str, pixels.shape))
        raise InputError(f"{name} has {shape} bytes, expected images: count x height x width, optionally x 3")
    if not len(pixels):
        raise InputError(f"{name} has no images: expected at least one")
    label_file = None if labeled is False else _find_labels(path)
    if labeled and label_file is None:
        raise InputError(f"{name}: no labels found; expected them in {_label_name(path)} in the same folder")
    values = None if label_file is None else _idx(label_file)
    if values is not None and values.shape != (len(pixels),):
        label_shape = " x ".join(map(str, values.shape))
        raise InputError(f"{label_file} has {label_shape} labels for {len(pixels)} images; expected one for each")
    texts = [None] * len(pixels) if values is None else [str(value) for value in values.tolist()]
    examples = [
        ImageExample(image, label, str(index)) for index, (image, label) in enumerate(zip(pixels, texts, strict=True))
    ]
    size = " x ".join(map(str, pixels.shape[1:]))
    description = f"IDX, {size}, " + ("no labels" if label_file is None else f"labels in {label_file.name}")
    return _example_set(examples, path, description, {})


def _label_name(path: Path) -> str:
    return File(path).name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")


def _find_labels(path: Path) -> File | None:
    if os.fspath(path) == STANDARD_INPUT or "images" not in File(path).name:
        return None
    labels = File(path).with_name(_label_name(path))
    plain = labels.with_suffix("") if labels.suffix in COMPRESSED_SUFFIXES else labels
    return next((file for file in (labels, plain, plain.with_name(plain.name + ".gz")) if file.is_file()), None)


def _idx(path: Path) -> Pixels:
    """Read an IDX file: two zero bytes, 8 (for uint8), the number of dimensions, each as four bytes, the values."""
    name = display_name(path)
    content = read_all_bytes(path)
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise InputError(
            f"{name} is neither an IDX file of bytes nor an image ({', '.join(sorted(_SUFFIXES))}); "
            "expected one of these or a folder with one folder per class"
        )
    start = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[offset : offset + 4], "big") for offset in range(4, start, 4))
    size = math.prod(shape)
    if len(content) != start + size:
        raise InputError(f"{name} should have {start + size} bytes by its header, got {len(content)}: copy it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
