"""What is looked into, by its name: a model with what reads for it, and a picture.

Knows folders of pretrained, tuned and translating models. Knows nothing of attention.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from regard import loading, translate
from regard.data.examples import Picture
from regard.data.readers.images import read_pictures
from regard.errors import InputError
from regard.inside.sight.looking import Reader
from regard.tasks.folder import is_solved, read_task
from regard.translate.folder import TRANSLATE

__all__ = ["opened", "picture"]


def opened(name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> tuple[nn.Module, Reader]:
    """A model and its tokenizer, or its subwords where it translates; of a tuned model the encoder.

    A folder, a built-in name or a Hugging Face hub name.
    """
    folder = loading.find(name_or_path)
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
    found = read_pictures(path, labelled=False).examples
    if len(found) != 1:
        raise InputError(f"{os.fspath(path)} holds {len(found):,} pictures; expected an image file with one")
    return found[0]
