"""Which layers make a vector: one, or a sum, mean or concatenation of several."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import InputError

__all__ = ["LayerSelection"]

FORMS = "a number such as -1, or sum, mean or concat of a slice such as concat(-4:); 0 is the embeddings' output"
OPERATIONS = ("sum", "mean", "concat")


@dataclass(frozen=True)
class LayerSelection:
    """`chosen` hidden states, joined by `operation` ("only" where there is one)."""

    operation: str
    chosen: tuple[int, ...]

    @staticmethod
    def parse(expression: int | str, count: int) -> LayerSelection:
        """Read an expression for a model with `count` hidden states, numbered as transformers does."""
        text = str(expression).replace(" ", "")
        if re.fullmatch(r"[+-]?\d{1,9}", text):
            number = int(text)
            if not -count <= number < count:
                raise InputError(
                    f"layer {number} is not there: this model has layers 0 to {count - 1} (or -{count} to -1)"
                )
            return LayerSelection("only", (number % count,))
        match = re.fullmatch(r"(\w+)\(([+-]?\d{0,9}):([+-]?\d{0,9})\)", text)
        if not match or match[1] not in OPERATIONS or isinstance(expression, bool):
            raise InputError(f"unknown layer expression {expression!r}: expected {FORMS}")
        start, stop = (int(part) if part else None for part in match.groups()[1:])
        chosen = tuple(range(count)[start:stop])
        if not chosen:
            raise InputError(f"layers {expression!r} choose none of this model's layers 0 to {count - 1}")
        return LayerSelection(match[1], chosen)

    @property
    def factor(self) -> int:
        """How many times the model's width the result is wide."""
        return len(self.chosen) if self.operation == "concat" else 1

    def join(self, states: Iterator[Tensor]) -> Tensor:
        """Take the chosen states from a model's, and no more than are needed: what is not asked for is not run."""
        found = []
        for number, state in enumerate(states):
            if number in self.chosen:
                found.append(state)
            if number == self.chosen[-1]:
                break
        if self.operation == "concat":
            return torch.cat(found, dim=-1)
        total = found[0]
        for state in found[1:]:
            total = total + state
        return total / len(found) if self.operation == "mean" else total
