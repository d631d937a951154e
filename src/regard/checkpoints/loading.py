"""`regard.load` and `regard.save`: read and write a model with its tokenizer."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from regard.checkpoints.load import read_model, write_model
from regard.errors import InputError, suggest
from regard.files.disk import finish_save
from regard.known import builtin_folder, builtin_names
from regard.text import Tokenizer


def load(
    name_or_path: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    revision: str = "main",
    offline: bool | None = None,
) -> tuple[nn.Module, Tokenizer | None]:
    """Load a model in evaluation mode and its tokenizer, from a folder, a built-in name or a Hugging Face hub name.

    The tokenizer is None if the model has none, such as a Vision Transformer. Weights are converted to `dtype`.
    """
    folder = find_folder(name_or_path, revision=revision, offline=offline)
    model = read_model(folder, dtype=dtype).to(device)
    rows = getattr(model.config, "vocab_size", None)
    return model, Tokenizer.open(folder, rows=rows) if Tokenizer.exists(folder) else None


def save(model: nn.Module, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> None:
    """Write a model folder with checksums, atomically. transformers can load it if it supports the family."""
    write_model(model, Path(folder), files={} if tokenizer is None else tokenizer.files())


def find_folder(name_or_path: str | os.PathLike[str], *, revision: str = "main", offline: bool | None = None) -> Path:
    """Return the folder of a model; a model on the hub is downloaded to the cache first."""
    name = os.fspath(name_or_path)
    folder = Path(os.path.expanduser(name))
    if name and os.path.isdir(folder):  # unlike Path.is_dir, os.path.isdir accepts any string
        finish_save(folder)
        return folder
    if name in builtin_names():
        return builtin_folder(name)
    if name.startswith("regard-"):
        known = builtin_names()
        hint = suggest(name, known) if known else "this installation has no built-in models"
        raise InputError(
            f"no built-in model {name!r}: {hint}. Give a model folder, or a model on the Hugging Face hub such as "
            "sentence-transformers/all-MiniLM-L6-v2"
        )
    if os.path.isfile(folder):
        raise InputError(f"{name}: this is a file; expected a model folder, such as {folder.parent}")
    if isinstance(name_or_path, os.PathLike) or name.startswith((".", "~", os.sep)) or name.count("/") > 1:
        beside = [p.name for p in folder.parent.iterdir() if p.is_dir()] if os.path.isdir(folder.parent) else []
        hint = f"; {suggest(folder.name, beside)}" if 0 < len(beside) <= 30 else ""
        raise InputError(f"{name}: no such folder{hint}")
    from regard.checkpoints.hub import fetch

    return fetch(name, revision=revision, offline=offline)
