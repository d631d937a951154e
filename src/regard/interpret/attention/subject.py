"""What is looked into, by its name: a model with what reads for it, and a picture.

Knows folders of pretrained, tuned and translating models. Knows nothing of attention.
"""

from __future__ import annotations

import io
import os
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from regard.checkpoints import loading
from regard.data.examples import Picture
from regard.data.readers.images import read_pictures
from regard.errors import InputError
from regard.inference import translation as translate
from regard.inference.translation.folder import TRANSLATE
from regard.interpret.attention.looking import Reader
from regard.tasks.folder import is_solved, read_task

__all__ = ["KINDS", "PIXELS", "check_picture", "opened", "picture", "picture_of"]

KINDS = {"PNG": ".png", "JPEG": ".jpg"}  # what may be sent
PIXELS = 50_000_000  # of a picture; a model sees a few thousand of them


def opened(name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> tuple[nn.Module, Reader]:
    """A model and its tokenizer, or its subwords where it translates; of a tuned model the encoder.

    A folder, a built-in name or a Hugging Face hub name.
    """
    folder = loading.find_folder(name_or_path)
    if (folder / TRANSLATE).is_file():
        translator = translate.load(folder, device=device)
        return translator.model, translator.subwords
    if is_solved(folder):
        solved = read_task(folder, device=device)
        return solved.model.encoder, solved.tokenizer
    return loading.load(folder, device=device)


def picture(path: str | os.PathLike[str]) -> Picture:
    """The one picture of an image file."""
    if not Path(path).is_file():
        raise InputError(f"{os.fspath(path)}: no such file; expected an image")
    if find_spec("PIL"):  # IDX files do without
        _kind(Path(path), os.fspath(path))
    found = read_pictures(path, labelled=False).examples
    if len(found) != 1:
        raise InputError(f"{os.fspath(path)} holds {len(found):,} pictures; expected an image file with one")
    return found[0]


def picture_of(content: bytes, name: str) -> Picture:
    """The picture of a PNG or JPEG file that was sent; `name` is what its sender calls it."""
    kind = check_picture(content, name)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"sent{KINDS[kind]}"
        path.write_bytes(content)
        try:
            return replace(read_pictures(path, labelled=False).examples[0], name=name)
        except InputError as error:
            raise InputError(str(error).replace(str(path), name)) from None


def check_picture(content: bytes, name: str) -> str:
    """Whether it is a PNG or a JPEG, by its beginning alone; InputError where it is neither or too large."""
    kind = _kind(io.BytesIO(content), name)
    if kind not in KINDS:
        raise InputError(f"{name} is {kind or 'no image'}; expected a PNG or JPEG file")
    return kind


def _kind(source: Path | io.BytesIO, name: str) -> str:
    """The format of an image, "" of what is none; InputError for one that has too many pixels."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError(f"{name} is an image, which needs Pillow: pip install 'regard[images]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # told below, in our words
            with Image.open(source) as image:
                kind, (width, height) = image.format or "", image.size
    except Image.DecompressionBombError:
        raise InputError(f"{name} has too many pixels; expected at most {PIXELS:,}. Make it smaller") from None
    except (OSError, ValueError, SyntaxError, EOFError):
        return ""
    if width * height > PIXELS:
        raise InputError(f"{name} has {width:,} x {height:,} pixels; expected at most {PIXELS:,}. Make it smaller")
    return kind
