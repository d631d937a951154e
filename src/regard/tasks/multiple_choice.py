"""Multiple choice: which of several endings follows a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import ChoiceExample
from regard.errors import InputError
from regard.tasks.inputs import InputBuilder
from regard.tasks.metrics import label_scores
from regard.tasks.task import Prediction, Task, TaskInput, kl_divergence

__all__ = ["MultipleChoice"]


class MultipleChoice(Task[ChoiceExample]):
    """Each ending is a row with the text before it; one number a row says how well it fits."""

    name: ClassVar[str] = "choose"
    main_metric: ClassVar[str] = "accuracy"
    transformers_head: ClassVar[str] = "MultipleChoice"
    pooled: ClassVar[bool] = True
    max_length: ClassVar[int] = 128

    @property
    def num_outputs(self) -> int:
        return 1

    @classmethod
    def from_examples(cls, examples: Sequence[ChoiceExample]) -> MultipleChoice:
        return cls()

    def to_dict(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> MultipleChoice:
        return cls()

    def check(self, example: ChoiceExample) -> None:
        if len(example.endings) < 2:
            raise InputError(f"expected at least two endings to choose from, got {len(example.endings)}")
        if example.label is not None and not 0 <= example.label < len(example.endings):
            raise InputError(f"the right ending is number {example.label}, and there are {len(example.endings)}")

    def preprocess(self, examples: Sequence[ChoiceExample], rows: InputBuilder) -> list[TaskInput]:
        made = iter(rows.sequences([(example.text, ending) for example in examples for ending in example.endings]))
        items = []
        for place, example in enumerate(examples):
            self.check(example)
            items.append(TaskInput(tuple(next(made) for _ in example.endings), place, example.label))
        return items

    def loss(self, numbers: Tensor, items: Sequence[TaskInput]) -> Tensor:
        parts = torch.split(numbers.squeeze(-1), [len(item.sequences) for item in items])
        losses = [
            F.cross_entropy(part, torch.tensor(item.target, device=part.device))
            for part, item in zip(parts, items, strict=True)
        ]
        return torch.stack(losses).mean()

    def distillation_loss(self, numbers: Tensor, wanted: Tensor, items: Sequence[TaskInput], softness: float) -> Tensor:
        """Over the endings of each text."""
        sizes = [len(item.sequences) for item in items]
        parts = zip(torch.split(numbers, sizes), torch.split(wanted, sizes), strict=True)
        return torch.stack([kl_divergence(ours.T, theirs.T, softness) for ours, theirs in parts]).mean()

    def postprocess(
        self, examples: Sequence[ChoiceExample], items: Sequence[TaskInput], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        found = []
        for example, part in zip(examples, numbers, strict=True):
            shares = part.squeeze(-1).double().softmax(-1).tolist()
            best = max(range(len(shares)), key=shares.__getitem__)
            found.append(
                {"text": example.text, "choice": best, "ending": example.endings[best], "probabilities": shares}
            )
        return found

    def compute_metrics(self, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [str(example.label) for example in examples]
        return {"accuracy": label_scores(truth, [str(one["choice"]) for one in predictions])["accuracy"]}
