"""`get_params` and `set_params` of scikit-learn's estimator interface, without a dependency on scikit-learn."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Self

from regard.errors import InputError, suggest


class EstimatorParameters:
    """Base of classes whose constructor stores each argument in an attribute of the same name."""

    @classmethod
    @cache
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
        parameters = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({parameters})"
