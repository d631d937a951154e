"""Base class of context managers that replace `F.linear`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class LinearOverride(TorchFunctionMode):
    """Inside the block, calls of `F.linear` in this thread go to `linear`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.linear and not kwargs:
            return self.linear(*args)
        return func(*args, **(kwargs or {}))

    @abstractmethod
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute x @ weight.T + bias. May also be called outside the block."""
