"""The part of scikit-learn's protocol that is about parameters: what a constructor was given, read and set by name.

Knows nothing of what the parameters mean, and does without scikit-learn.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

from regard.errors import InputError, suggest

__all__ = ["EstimatorParameters"]


class EstimatorParameters:
    """For a class whose constructor stores each of its arguments under its own name."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.names()}

    def set_params(self, **params: Any) -> Self:
        for name, value in params.items():
            if name not in (names := self.names()):
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; {suggest(name, names)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({given})"
