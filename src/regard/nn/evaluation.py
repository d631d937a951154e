"""Evaluation mode as a context manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["evaluation_mode"]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients inside; afterwards each module is in its former mode."""
    before = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, training in before:
            part.training = training
