"""A pretrained model with a small layer for a task on it, and batches of items for it.

Knows tensors and which vectors a family is asked for. Knows no labels, no losses and no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoints.ready import evaluation_mode
from regard.data.batch import Batch, collate, group_by_token_budget
from regard.device import autocast_dtype
from regard.errors import InputError
from regard.models import Bert, Elmo, Gpt
from regard.nn import Layout, Packed, ScalarMix
from regard.nn import init as initial
from regard.nn.masks import length_groups
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.task import Task, TaskInput

__all__ = ["EncoderWithHead", "TaskBatch", "TaskHead", "collate_inputs", "compute_logits"]

Encoder = Bert | Gpt | Elmo
BUDGET = {"cpu": 2048, "cuda": 65536}  # tokens of a forward pass that only predicts


class TaskHead(nn.Module):
    """(M, W) -> (M, outputs): a linear layer; before it, where one vector speaks for a row, another one."""

    def __init__(self, width: int, outputs: int, *, pool: nn.Module | None, dropout: float, bias: bool = True) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, outputs, bias=bias)
        initial.normal_init(self.output)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.pool is None else self.pool(x)
        result: Tensor = self.output(self.dropout(x))
        return result


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Packed sequences for `EncoderWithHead`; `positions` (flat) select the vectors to classify, None selects all."""

    batch: Batch
    segments: Tensor
    positions: Tensor | None

    def to(self, device: torch.device) -> TaskBatch:
        positions = None if self.positions is None else self.positions.to(device)
        return TaskBatch(self.batch.to(device), self.segments.to(device), positions)


class EncoderWithHead(nn.Module):
    """An encoder and a head.

    Of an ELMo all layers are asked, and `mix` learns how much each counts. Its first token has not read the text in
    both directions, as a BERT's has: where one vector speaks for a row (`mean_pooled`) it is the mean of the row's.
    """

    def __init__(self, encoder: Encoder, head: TaskHead, *, mean_pooled: bool = False) -> None:
        super().__init__()
        self.encoder, self.head, self.mean_pooled = encoder, head, mean_pooled
        self.mix = ScalarMix(encoder.config.num_hidden_layers + 1) if isinstance(encoder, Elmo) else None

    @classmethod
    def from_encoder(cls, encoder: nn.Module, task: Task[Any]) -> EncoderWithHead:
        """A head with new weights. What the encoder has for other tasks is left out, its pooler is taken over."""
        if not isinstance(encoder, Bert | Gpt | Elmo):
            raise InputError(f"{task.name} needs a BERT, a GPT or an ELMo, got a {type(encoder).__name__}")
        if isinstance(encoder, Elmo):
            if encoder.config.num_characters:
                raise InputError(
                    f"{task.name} needs an ELMo that reads a tokenizer's pieces; this one reads characters"
                )
            encoder.output = None
            head = TaskHead(encoder.config.output_size, task.num_outputs, pool=None, dropout=encoder.config.dropout)
            return cls(encoder, head, mean_pooled=task.pooled)
        config, pool = encoder.config, None
        if isinstance(encoder, Bert):
            if task.pooled:
                pool = pool_of(config.family, config.hidden_size)
                if encoder.pooler is not None:
                    pool[0].load_state_dict(encoder.pooler.linear.state_dict())
            encoder.pooler = encoder.masked = encoder.next = None
        bias = not (task.pooled and isinstance(encoder, Gpt))  # as transformers has it
        return cls(
            encoder, TaskHead(config.hidden_size, task.num_outputs, pool=pool, dropout=config.dropout, bias=bias)
        )

    def forward(self, inputs: TaskBatch) -> Tensor:
        if not isinstance(self.encoder, Bert):
            return self.forward_with_hidden(inputs)[1]
        # Of the last layer, a BERT computes only what is asked for to the end.
        hidden = self.encoder(inputs.batch.ids, inputs.batch.layout, *self._segments(inputs), rows=inputs.positions)
        result: Tensor = self.head(hidden)
        return result

    def forward_with_hidden(self, inputs: TaskBatch) -> tuple[Tensor, Tensor]:
        """The last hidden states of all tokens, (N, W), and the numbers."""
        ids, layout = inputs.batch.ids, inputs.batch.layout
        hidden: Tensor
        if isinstance(self.encoder, Elmo):
            assert self.mix is not None
            hidden = self.mix(list(self.encoder.states(ids, layout)))
        else:
            hidden = self.encoder(ids, layout, *self._segments(inputs))
        if self.mean_pooled:
            return hidden, self.head(_means(hidden, layout))
        return hidden, self.head(hidden if inputs.positions is None else hidden[inputs.positions])

    def collate(self, items: Sequence[TaskInput]) -> TaskBatch:
        return collate_inputs(items)

    def output_counts(self, items: Sequence[TaskInput]) -> list[int]:
        """How many positions each item asks for."""
        return [
            sum(len(row) if row.positions is None else len(row.positions) for row in item.sequences) for item in items
        ]

    def num_tokens(self, item: TaskInput) -> int:
        """In tokens."""
        return len(item)

    def _segments(self, inputs: TaskBatch) -> tuple[Tensor, ...]:
        """Where the family has any."""
        return (inputs.segments,) if isinstance(self.encoder, Bert) and self.encoder.config.type_vocab_size else ()


def _means(hidden: Tensor, layout: Layout) -> Tensor:
    """Of each row the mean of its vectors, (rows, W)."""
    assert isinstance(layout, Packed)
    return torch.cat([run.select_queries(hidden).mean(1) for run in length_groups(layout, layout)])


def pool_of(family: str, width: int) -> nn.Sequential:
    """The layer between the first token's vector and a head, which DistilBERT ends otherwise than BERT."""
    linear = nn.Linear(width, width)
    initial.normal_init(linear)
    return nn.Sequential(linear, nn.ReLU() if family == "distilbert" else nn.Tanh())


def collate_inputs(items: Sequence[TaskInput]) -> TaskBatch:
    """Rows of items one behind the other, in their order."""
    rows = [row for item in items for row in item.sequences]
    starts = [0, *accumulate(map(len, rows))]
    positions = None
    if all(row.positions is not None for row in rows):
        positions = torch.tensor(
            [start + place for start, row in zip(starts, rows, strict=False) for place in row.positions or ()]
        )
    segments = torch.tensor([segment for row in rows for segment in row.segments])
    return TaskBatch(collate([row.ids for row in rows]), segments, positions)


def compute_logits(
    model: EncoderWithHead | ImageClassifier,
    items: Sequence[TaskInput],
    device: torch.device,
    *,
    precision: str = "auto",
) -> Iterator[tuple[int, Tensor]]:
    """What the model says of each item, (positions, outputs) on the CPU, with the item's place in `items`.

    Items of like length go together, so they come in another order.
    """
    half = autocast_dtype(precision, device)
    for group in group_by_token_budget([model.num_tokens(item) for item in items], BUDGET[device.type]):
        chosen = [items[place] for place in group]
        with evaluation_mode(model), torch.autocast(device.type, half, enabled=half is not None):
            found = model(model.collate(chosen).to(device)).float().cpu()
        yield from zip(group, found.split(model.output_counts(chosen)), strict=True)
