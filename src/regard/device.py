"""Selection of the device and of the precision of matrix products."""

from __future__ import annotations

import torch

from regard.errors import InputError, suggest


def choose_device(name: str = "auto") -> torch.device:
    """Return the device for `auto` (the accelerator if there is one), `cpu`, `cuda`, `cuda:1`, `mps` and so on."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return torch.device("cpu") if accelerator is None else torch.device(accelerator.type)
    kind, _, number = name.partition(":")
    if kind == "cpu" and not number:
        return torch.device("cpu")
    available = {"auto", "cpu"} if accelerator is None else {"auto", "cpu", accelerator.type}
    known = {*available, "cuda", "mps", "xpu"}
    if kind not in known or (number and not number.isdigit()):
        raise InputError(f"unknown device {name!r}; {suggest(name, sorted(known))}")
    count = torch.accelerator.device_count() if kind in available else 0
    if int(number or 0) >= count:
        found = f"torch sees {count} devices of that type" if count else "torch sees no device of that type"
        raise InputError(f"device {name!r} is not available: {found}; use --device cpu")
    return torch.device(name)


def all_devices(name: str = "auto") -> list[torch.device]:
    """Return all accelerators of the machine for `auto` or a name without a number, else the device of that name."""
    device = choose_device(name)
    if device.type == "cpu" or device.index is not None or torch.accelerator.device_count() < 2:
        return [device]
    return [torch.device(device.type, index) for index in range(torch.accelerator.device_count())]


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished all work; a CPU needs no waiting."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def supports_bf16(device: torch.device) -> bool:
    """Whether bfloat16 is fast on a device: on a GPU that has it. CPUs mostly emulate it, at a tenth of the speed."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported()


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """Return the dtype of matrix products under autocast, or None for float32. Weights are always float32.

    `precision` is `auto` (bf16 on a GPU that supports it), `bf16` or `fp32`.
    """
    if precision == "auto":
        return torch.bfloat16 if supports_bf16(device) else None
    return torch.bfloat16 if precision == "bf16" else None
