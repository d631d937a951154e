"""Multiple choice: which of several endings follows a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import Choice
from regard.errors import InputError
from regard.tasks.base import Item, Prediction, Task, divergence
from regard.tasks.metrics import label_scores
from regard.tasks.rows import Rows

__all__ = ["Choose"]


class Choose(Task[Choice]):
    """Each ending is a row with the text before it; one number a row says how well it fits."""

    name: ClassVar[str] = "choose"
    main: ClassVar[str] = "accuracy"
    kind: ClassVar[str] = "MultipleChoice"
    pooled: ClassVar[bool] = True
    length: ClassVar[int] = 128

    @property
    def outputs(self) -> int:
        return 1

    @classmethod
    def learn(cls, examples: Sequence[Choice]) -> Choose:
        return cls()

    def document(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restore(cls, document: Mapping[str, Any]) -> Choose:
        return cls()

    def check(self, example: Choice) -> None:
        if len(example.endings) < 2:
            raise InputError(f"expected at least two endings to choose from, got {len(example.endings)}")
        if example.label is not None and not 0 <= example.label < len(example.endings):
            raise InputError(f"the right ending is number {example.label}, and there are {len(example.endings)}")

    def items(self, examples: Sequence[Choice], rows: Rows) -> list[Item]:
        made = iter(rows.whole([(example.text, ending) for example in examples for ending in example.endings]))
        items = []
        for place, example in enumerate(examples):
            self.check(example)
            items.append(Item(tuple(next(made) for _ in example.endings), place, example.label))
        return items

    def loss(self, numbers: Tensor, items: Sequence[Item]) -> Tensor:
        parts = torch.split(numbers.squeeze(-1), [len(item.rows) for item in items])
        losses = [
            F.cross_entropy(part, torch.tensor(item.target, device=part.device))
            for part, item in zip(parts, items, strict=True)
        ]
        return torch.stack(losses).mean()

    def soft_loss(self, numbers: Tensor, wanted: Tensor, items: Sequence[Item], softness: float) -> Tensor:
        """Over the endings of each text."""
        sizes = [len(item.rows) for item in items]
        parts = zip(torch.split(numbers, sizes), torch.split(wanted, sizes), strict=True)
        return torch.stack([divergence(ours.T, theirs.T, softness) for ours, theirs in parts]).mean()

    def predictions(
        self, examples: Sequence[Choice], items: Sequence[Item], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        found = []
        for example, part in zip(examples, numbers, strict=True):
            shares = part.squeeze(-1).double().softmax(-1).tolist()
            best = max(range(len(shares)), key=shares.__getitem__)
            found.append(
                {"text": example.text, "choice": best, "ending": example.endings[best], "probabilities": shares}
            )
        return found

    def scores(self, examples: Sequence[Choice], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [str(example.label) for example in examples]
        return {"accuracy": label_scores(truth, [str(one["choice"]) for one in predictions])["accuracy"]}
