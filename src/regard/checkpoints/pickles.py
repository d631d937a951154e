"""`pytorch_model.bin`: a dictionary of tensors that torch.save wrote, read without running anything in it.

Knows torch's weights-only reader, and that there is no other way in: no option, no fallback. Knows no model.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from pathlib import Path

import torch

from regard.errors import InputError, RegardError

__all__ = ["read_pickle"]

CONVERT = (
    "If you trust where it comes from, open it there with torch.load, and save its tensors as model.safetensors with "
    "safetensors.torch.save_file"
)


def read_pickle(path: Path) -> dict[str, torch.Tensor]:
    """The tensors by name, on the CPU, memory mapped unless the file is of the old format without an archive."""
    most = 20 * path.stat().st_size + 64_000_000
    try:
        if zipfile.is_zipfile(path):
            _check_archive(path, most=most)
        with path.open("rb") as file:
            mapped = file.read(4) == b"PK\x03\x04"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks on files that are refused anyway
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except RegardError:
        raise
    except Exception as error:  # a hostile or damaged pickle can raise anything
        raise _unreadable(path, error) from error
    return _check_tensors(path, loaded, most=most)


def _check_archive(path: Path, *, most: int) -> None:
    """torch.save stores and never compresses, so an archive that would grow is not its work."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if sum(entry.file_size for entry in entries) > most or any(entry.compress_type for entry in entries):
        raise InputError(
            f"{path}: refused: an archive that grows when it is opened, which torch.save does not write; "
            f"nothing was unpacked. {CONVERT}"
        )


def _check_tensors(path: Path, loaded: object, *, most: int) -> dict[str, torch.Tensor]:
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected a dictionary of tensors by name, found {type(loaded).__name__}. {CONVERT}")
    total = 0
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise InputError(
                f"{path}: expected one tensor for each name, found {type(tensor).__name__} at {name!r}. {CONVERT}"
            )
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise InputError(f"{path}: tensor {name!r} is not a plain dense one ({tensor.layout}). {CONVERT}")
        total += tensor.numel() * tensor.element_size()
    if total > most:
        raise InputError(f"{path}: refused: its tensors claim {total:,} bytes, far more than the file holds")
    return {name: tensor.detach() for name, tensor in loaded.items()}


def _unreadable(path: Path, error: Exception) -> InputError:
    text = str(error)
    if isinstance(error, pickle.UnpicklingError) or "weights_only" in text:
        named = re.search(r"GLOBAL ([\w.]+)", text)
        what = f"it asks for {named[1]}" if named else "it holds more than tensors"
        return InputError(f"{path}: refused: {what}, or is damaged; nothing in it was executed. {CONVERT}")
    reason = next(iter(text.splitlines()), type(error).__name__)
    return InputError(f"{path}: cannot be read ({reason}): damaged or cut short; download or copy it again")
