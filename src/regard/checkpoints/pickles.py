"""Reads `pytorch_model.bin`, a dictionary of tensors written by torch.save, without executing anything in it.

Only the weights-only reader of torch is used; there is no option or fallback to unpickle other objects.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from pathlib import Path

import torch

from regard.errors import InputError, RegardError

CONVERT = (
    "If you trust its source, open the file with torch.load, and save its tensors as model.safetensors with "
    "safetensors.torch.save_file"
)


def read_pickle(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors by name, on the CPU, memory mapped unless the file has the old format without an archive."""
    max_bytes = 20 * path.stat().st_size + 64_000_000
    try:
        if zipfile.is_zipfile(path):
            _check_archive(path, max_bytes=max_bytes)
        with path.open("rb") as file:
            mapped = file.read(4) == b"PK\x03\x04"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about files that are refused anyway
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except RegardError:
        raise
    except Exception as error:  # a hostile or damaged pickle can raise anything
        raise _unreadable(path, error) from error
    return _check_tensors(path, loaded, max_bytes=max_bytes)


def _check_archive(path: Path, *, max_bytes: int) -> None:
    """Refuse a compressed archive: torch.save does not compress."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if sum(entry.file_size for entry in entries) > max_bytes or any(entry.compress_type for entry in entries):
        raise InputError(
            f"{path}: refused: an archive that grows when unpacked, which torch.save does not write; "
            f"nothing was unpacked. {CONVERT}"
        )


def _check_tensors(path: Path, loaded: object, *, max_bytes: int) -> dict[str, torch.Tensor]:
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected a dictionary of tensors by name, found {type(loaded).__name__}. {CONVERT}")
    total = 0
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise InputError(
                f"{path}: expected one tensor for each name, found {type(tensor).__name__} at {name!r}. {CONVERT}"
            )
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise InputError(f"{path}: tensor {name!r} is not a plain dense tensor ({tensor.layout}). {CONVERT}")
        total += tensor.numel() * tensor.element_size()
    if total > max_bytes:
        raise InputError(f"{path}: refused: its tensors claim {total:,} bytes, far more than the size of the file")
    return {name: tensor.detach() for name, tensor in loaded.items()}


def _unreadable(path: Path, error: Exception) -> InputError:
    text = str(error)
    if isinstance(error, pickle.UnpicklingError) or "weights_only" in text:
        match = re.search(r"GLOBAL ([\w.]+)", text)
        reason = f"it refers to {match[1]}" if match else "it contains more than tensors"
        return InputError(f"{path}: refused: {reason}, or is damaged; nothing in it was executed. {CONVERT}")
    reason = next(iter(text.splitlines()), type(error).__name__)
    return InputError(f"{path}: cannot be read ({reason}): damaged or cut short; download or copy it again")
