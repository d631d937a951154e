"""Weights in fewer bytes: float16, or 8-bit integers with one scale per row, converted to float when a model is loaded.

In 8 bits, a matrix NAME is stored as the int8 tensor NAME and the float32 vector NAME.scale: row i is
`scale[i] * NAME[i]`, where the largest value of a row is 127, so that no value is off by more than half a scale. A row
is all that belongs to one index of the first dimension. Vectors, such as biases and norms, are stored in float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from regard.checkpoints.files import OUR_WEIGHTS, read_tensors, write_folder
from regard.errors import InputError
from regard.files.checksums import CHECKSUMS
from regard.files.json_files import json_bytes, read_json

Storage = Literal["float16", "int8"]
REPORTS = ("report.json", "report.md", "test.tsv")  # of a training run
SCALE = ".scale"
LEVELS = 127
# In config.json under "quantization_config": without a "quant_method", transformers refuses the folder, which it would
# misread otherwise.
INT8_FORMAT = {"format": "regard-int8"}


def quantize(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors as they are stored in 8 bits."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim < 2 or not tensor.is_floating_point():
            stored[name] = _half(tensor)
            continue
        if not tensor.isfinite().all():
            raise InputError(f"{name} has values that are not finite, which 8 bits cannot store; train again")
        rows = tensor.detach().float().flatten(1)
        scale = rows.abs().amax(1) / LEVELS
        scale[scale == 0] = 1.0
        stored[name] = (rows / scale[:, None]).round().to(torch.int8).view(tensor.shape)
        stored[name + SCALE] = scale
    return stored


def dequantize(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a file with those in 8 bits as float32; `folder` is only used in messages.

    Raises InputError for a scale with a wrong shape or type, or a value that is not positive and finite.
    """
    names = [name for name, tensor in tensors.items() if tensor.dtype == torch.int8 and name + SCALE in tensors]
    result = {name: tensor for name, tensor in tensors.items() if name.removesuffix(SCALE) not in names}
    for name in names:
        stored, scale = tensors[name], tensors[name + SCALE]
        if scale.shape != stored.shape[:1] or not scale.is_floating_point() or stored.ndim < 2:
            raise InputError(
                f"{folder}: {name} has shape {tuple(stored.shape)} in 8 bits, and {name}{SCALE} is {scale.dtype} of "
                f"shape {tuple(scale.shape)}; expected a floating point scale for each row. Copy the folder again"
            )
        if not scale.is_meta and not (scale.isfinite() & (scale > 0)).all():
            raise InputError(
                f"{folder}: {name}{SCALE} has values that are not positive and finite; copy the folder again"
            )
        result[name] = stored.float() * scale.float().view(-1, *[1] * (stored.ndim - 1))
    return result


def write_compact(source: Path, output: Path, *, storage: Storage, files: Mapping[str, bytes] | None = None) -> int:
    """Copy a model folder that Regard wrote, with its weights in fewer bytes; return the size of the copy in bytes.

    `files` are added or replaced, and the reports of training are not copied. The copy is loaded like every folder;
    `regard.save` of the loaded model writes ordinary float weights.
    """
    if not (source / CHECKSUMS).is_file():
        raise InputError(f"{source}: no {CHECKSUMS}; expected a folder that Regard wrote")
    tensors = read_tensors(source)  # compares every file with its checksum
    names = [name for name in read_json(source / CHECKSUMS) if not OUR_WEIGHTS.fullmatch(name)]
    contents = {name: (source / name).read_bytes() for name in names if name not in REPORTS}
    config = {**read_json(source / "config.json"), "dtype": "float16"}
    if storage == "int8":
        config |= {"dtype": "float32", "quantization_config": INT8_FORMAT}
    stored = quantize(tensors) if storage == "int8" else {name: _half(tensor) for name, tensor in tensors.items()}
    write_folder(output, tensors=stored, files={**contents, "config.json": json_bytes(config), **(files or {})})
    return sum(file.stat().st_size for file in output.rglob("*") if file.is_file())


def _half(tensor: Tensor) -> Tensor:
    """The tensor in float16, unless it is not a float or a value is too large."""
    if not tensor.is_floating_point():
        return tensor
    half = tensor.half()
    return half if half.isfinite().all() or not tensor.isfinite().all() else tensor
