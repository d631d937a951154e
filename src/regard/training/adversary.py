"""Adversarial training: a batch is learned a second time with its word vectors moved to where the loss grows fastest.

Miyato, Dai and Goodfellow 2017. Knows one matrix and its gradient. Knows nothing of losses or steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["Adversary"]


class Adversary:
    """`with adversary.moved():` has `weight` away from its place by `size`, all its rows together, along its gradient.

    The gradient is that of the pass before, and what the second pass adds to it stays.
    """

    def __init__(self, weight: Tensor, size: float) -> None:
        self.weight, self.size = weight, size

    @contextmanager
    def moved(self) -> Iterator[None]:
        gradient = self.weight.grad
        if gradient is None:
            raise RuntimeError("no gradient yet: an adversary moves after a backward pass")
        place = self.weight.detach().clone()  # to the last bit: subtracting again would leave a trace
        with torch.no_grad():
            # On the device: a GPU does not wait to learn how long it is.
            self.weight.add_(gradient * (self.size / (gradient.norm() + 1e-12)))
        try:
            yield
        finally:
            with torch.no_grad():
                self.weight.copy_(place)
