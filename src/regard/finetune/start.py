"""What every seed of a run begins with, and what it minimises: a pretrained model, or a student of a tuned one.

Knows models and losses. Knows no files, no optimizer and no order of examples.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError
from regard.models import Bert
from regard.tasks.base import Item, Task
from regard.tasks.folder import Solved
from regard.tasks.model import Inputs, Tuned
from regard.text import Tokenizer

__all__ = ["Distilling", "Objective", "Start", "Student"]

SOFTNESS = 2.0  # the temperature at which a student compares itself with its teacher
SOFT, HIDDEN = 5.0, 1.0  # how much the teacher's numbers and its hidden states count, as in DistilBERT; labels count 1


class Objective(nn.Module):
    """What `train` minimises: the task's loss."""

    def __init__(self, model: Tuned, task: Task[Any]) -> None:
        super().__init__()
        self.model, self.task = model, task
        self.frozen = not any(parameter.requires_grad for parameter in model.encoder.parameters())

    def train(self, mode: bool = True) -> Objective:
        super().train(mode)
        if self.frozen:  # what does not learn is not disturbed either
            self.model.encoder.eval()
        return self

    def forward(self, inputs: Inputs, items: Sequence[Item]) -> dict[str, Tensor]:
        return {"loss": self.task.loss(self.model(inputs).float(), items)}


class Distilling(Objective):
    """Labels, and what a teacher says beside them: its numbers, softened, and the direction of its hidden states."""

    def __init__(self, model: Tuned, task: Task[Any], teacher: Tuned) -> None:
        super().__init__(model, task)
        self.teacher = [teacher.eval()]  # in a list: it does not learn and is not saved

    def forward(self, inputs: Inputs, items: Sequence[Item]) -> dict[str, Tensor]:
        teacher = self.teacher[0].to(inputs.segments.device)
        with torch.no_grad():
            wanted, wanted_numbers = teacher.seen(inputs)
        hidden, numbers = self.model.seen(inputs)
        losses = {
            "labels": self.task.loss(numbers.float(), items),
            "soft": self.task.soft_loss(numbers.float(), wanted_numbers.float(), items, SOFTNESS),
            "hidden": (1 - F.cosine_similarity(hidden.float(), wanted.float(), dim=-1)).mean(),
        }
        return losses | {"loss": losses["labels"] + SOFT * losses["soft"] + HIDDEN * losses["hidden"]}


class Start:
    """A pretrained model; every seed draws another head."""

    def __init__(self, task: Task[Any], encoder: nn.Module, tokenizer: Tokenizer, *, length: int) -> None:
        positions: int = getattr(encoder.config, "positions", length)
        self.task, self.encoder, self.tokenizer = task, encoder, tokenizer
        self.length = min(length or task.length, positions)

    def new(self, seed: int) -> Tuned:
        torch.manual_seed(seed)
        return Tuned.new(copy.deepcopy(self.encoder), self.task)

    def objective(self, model: Tuned) -> Objective:
        return Objective(model, self.task)

    def solved(self, model: Tuned) -> Solved:
        return Solved(self.task, model, self.tokenizer, self.length)


class Student(Start):
    """Some of a tuned model's layers, evenly chosen, under its own embeddings and head."""

    def __init__(self, teacher: Solved, *, layers: int, length: int) -> None:
        encoder = teacher.model.encoder
        depth = encoder.config.depth
        if not isinstance(encoder, Bert):
            raise InputError("only a BERT can be distilled; train the teacher from one")
        if not 1 <= layers < depth:
            raise InputError(f"--layers is {layers}; expected fewer layers than the teacher has, 1 to {depth - 1}")
        super().__init__(teacher.task, encoder, teacher.tokenizer, length=length or teacher.length)
        self.teacher, self.layers = teacher.model, layers

    def new(self, seed: int) -> Tuned:
        student = copy.deepcopy(self.teacher)
        encoder = student.encoder
        assert isinstance(encoder, Bert)
        depth = encoder.config.depth
        # Evenly spread, the first among them: 0, 2, 4, 6 of 8.
        kept = [number * depth // self.layers for number in range(self.layers)]
        encoder.encoder.layers = nn.ModuleList([encoder.encoder.layers[number] for number in kept])
        encoder.config = replace(encoder.config, depth=self.layers)
        return student

    def objective(self, model: Tuned) -> Objective:
        return Distilling(model, self.task, self.teacher)
