"""A block inside which linear maps are computed in another way. Knows their signature, and no way to compute one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["LinearOverride"]


class LinearOverride(TorchFunctionMode):
    """Inside, and in this thread, `F.linear` is `linear`."""

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
        """This may be called outside of the block too."""
