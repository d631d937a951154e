"""Selection of the device and of the precision of matrix products."""

from __future__ import annotations

import torch

from regard.errors import InputError, suggest


def choose_device(name: str = "auto") -> torch.device:
    """Return the device for `auto` (a CUDA GPU if available), `cpu`, `cuda` or `cuda:N`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise InputError(f"unknown device {name!r}; {suggest(name, ['auto', 'cpu', 'cuda'])}")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {name!r} is not available: torch sees {torch.cuda.device_count()} CUDA GPUs; use --device cpu"
        )
    return torch.device(name)


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished all work; a CPU needs no waiting."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """Return the dtype of matrix products under autocast, or None for float32. Weights are always float32.

    `precision` is `auto` (bf16 on a GPU that supports it), `bf16` or `fp32`.
    """
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    return torch.bfloat16 if precision == "bf16" else None
