"""Where the arithmetic runs."""

from __future__ import annotations

import torch

from regard.errors import InputError, suggest

__all__ = ["autocast_dtype", "choose_device", "synchronize"]


def choose_device(name: str = "auto") -> torch.device:
    """`auto` takes a CUDA GPU where there is one; `cpu`, `cuda` and `cuda:N` mean what they say."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise InputError(f"unknown device {name!r}; {suggest(name, ['auto', 'cpu', 'cuda'])}")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA GPUs; use --device cpu"
        )
    return torch.device(name)


def synchronize(device: torch.device) -> None:
    """Until what a GPU was asked for is done; a CPU always is."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """What matrix products are computed in; None: float32, as weights always are.

    `auto` is bf16 on a GPU that has it; `bf16` and `fp32` mean what they say.
    """
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    return torch.bfloat16 if precision == "bf16" else None
