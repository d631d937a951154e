"""Which hidden states make up an embedding, and how they are combined."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError

FORMS = "a number such as -1, or sum, mean or concat of a slice such as concat(-4:); 0 is the embedding output"
OPERATIONS = ("sum", "mean", "concat")


@dataclass(frozen=True)
class LayerSelection:
    """The `chosen` hidden states, combined by `operation` ("only" for a single one)."""

    operation: str
    chosen: tuple[int, ...]

    @staticmethod
    def parse(expression: int | str, count: int) -> LayerSelection:
        """Parse an expression for a model with `count` hidden states, numbered as in transformers."""
        text = str(expression).replace(" ", "")
        if re.fullmatch(r"[+-]?\d{1,9}", text):
            number = int(text)
            if not -count <= number < count:
                raise InputError(
                    f"layer {number} does not exist: this model has layers 0 to {count - 1} (or -{count} to -1)"
                )
            return LayerSelection("only", (number % count,))
        match = re.fullmatch(r"(\w+)\(([+-]?\d{0,9}):([+-]?\d{0,9})\)", text)
        if not match or match[1] not in OPERATIONS or isinstance(expression, bool):
            raise InputError(f"unknown layer expression {expression!r}: expected {FORMS}")
        start, stop = (int(part) if part else None for part in match.groups()[1:])
        chosen = tuple(range(count)[start:stop])
        if not chosen:
            raise InputError(f"{expression!r} selects none of this model's layers 0 to {count - 1}")
        return LayerSelection(match[1], chosen)

    @property
    def factor(self) -> int:
        """The width of the result as a multiple of the width of the model."""
        return len(self.chosen) if self.operation == "concat" else 1

    def join(self, states: Iterator[Tensor]) -> Tensor:
        """Combine the chosen states. Layers after the last chosen one are not computed."""
        selected = []
        for number, state in enumerate(states):
            if number in self.chosen:
                selected.append(state)
            if number == self.chosen[-1]:
                break
        if self.operation == "concat":
            return torch.cat(selected, dim=-1)
        total = selected[0]
        for state in selected[1:]:
            total = total + state
        return total / len(selected) if self.operation == "mean" else total
