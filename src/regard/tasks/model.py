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

from regard.checkpoints.ready import evaluating
from regard.data.batch import Batch, by_budget, collate
from regard.device import half_type
from regard.errors import InputError
from regard.models import Bert, Elmo, Gpt
from regard.nn import Layout, Packed, ScalarMix
from regard.nn import init as initial
from regard.nn.masks import length_groups
from regard.tasks.base import Item, Task
from regard.tasks.pictures import Seen

__all__ = ["Head", "Inputs", "Tuned", "gathered", "numbers"]

Encoder = Bert | Gpt | Elmo
BUDGET = {"cpu": 2048, "cuda": 65536}  # tokens of a forward pass that only predicts


class Head(nn.Module):
    """(M, W) -> (M, outputs): a linear layer; before it, where one vector speaks for a row, another one."""

    def __init__(self, width: int, outputs: int, *, pool: nn.Module | None, dropout: float, bias: bool = True) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, outputs, bias=bias)
        initial.normal(self.output)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.pool is None else self.pool(x)
        result: Tensor = self.output(self.dropout(x))
        return result


@dataclass(frozen=True, eq=False)
class Inputs:
    """What `Tuned` reads: packed rows. `places` are those of the flat batch whose vectors are asked for; None: all."""

    batch: Batch
    segments: Tensor
    places: Tensor | None

    def to(self, device: torch.device) -> Inputs:
        places = None if self.places is None else self.places.to(device)
        return Inputs(self.batch.to(device), self.segments.to(device), places)


class Tuned(nn.Module):
    """An encoder and a head.

    Of an ELMo all layers are asked, and `mix` learns how much each counts. Its first token has not read the text in
    both directions, as a BERT's has: where one vector speaks for a row (`averaged`) it is the mean of the row's.
    """

    def __init__(self, encoder: Encoder, head: Head, *, averaged: bool = False) -> None:
        super().__init__()
        self.encoder, self.head, self.averaged = encoder, head, averaged
        self.mix = ScalarMix(encoder.config.depth + 1) if isinstance(encoder, Elmo) else None

    @classmethod
    def new(cls, encoder: nn.Module, task: Task[Any]) -> Tuned:
        """A head with new weights. What the encoder has for other tasks is left out, its pooler is taken over."""
        if not isinstance(encoder, Bert | Gpt | Elmo):
            raise InputError(f"{task.name} needs a BERT, a GPT or an ELMo, got a {type(encoder).__name__}")
        if isinstance(encoder, Elmo):
            if encoder.config.characters:
                raise InputError(
                    f"{task.name} needs an ELMo that reads a tokenizer's pieces; this one reads characters"
                )
            encoder.output = None
            head = Head(encoder.config.vector_width, task.outputs, pool=None, dropout=encoder.config.dropout)
            return cls(encoder, head, averaged=task.pooled)
        config, pool = encoder.config, None
        if isinstance(encoder, Bert):
            if task.pooled:
                pool = pool_of(config.family, config.width)
                if encoder.pooler is not None:
                    pool[0].load_state_dict(encoder.pooler.linear.state_dict())
            encoder.pooler = encoder.masked = encoder.next = None
        bias = not (task.pooled and isinstance(encoder, Gpt))  # as transformers has it
        return cls(encoder, Head(config.width, task.outputs, pool=pool, dropout=config.dropout, bias=bias))

    def forward(self, inputs: Inputs) -> Tensor:
        if not isinstance(self.encoder, Bert):
            return self.seen(inputs)[1]
        # Of the last layer, a BERT computes only what is asked for to the end.
        hidden = self.encoder(inputs.batch.ids, inputs.batch.layout, *self._segments(inputs), rows=inputs.places)
        result: Tensor = self.head(hidden)
        return result

    def seen(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """The last hidden states of all tokens, (N, W), and the numbers."""
        ids, layout = inputs.batch.ids, inputs.batch.layout
        hidden: Tensor
        if isinstance(self.encoder, Elmo):
            assert self.mix is not None
            hidden = self.mix(list(self.encoder.states(ids, layout)))
        else:
            hidden = self.encoder(ids, layout, *self._segments(inputs))
        if self.averaged:
            return hidden, self.head(_means(hidden, layout))
        return hidden, self.head(hidden if inputs.places is None else hidden[inputs.places])

    def gathered(self, items: Sequence[Item]) -> Inputs:
        return gathered(items)

    def sizes(self, items: Sequence[Item]) -> list[int]:
        """How many places each item asks for."""
        return [sum(len(row) if row.places is None else len(row.places) for row in item.rows) for item in items]

    def length(self, item: Item) -> int:
        """In tokens."""
        return len(item)

    def _segments(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """Where the family has any."""
        return (inputs.segments,) if isinstance(self.encoder, Bert) and self.encoder.config.segments else ()


def _means(hidden: Tensor, layout: Layout) -> Tensor:
    """Of each row the mean of its vectors, (rows, W)."""
    assert isinstance(layout, Packed)
    return torch.cat([run.select_queries(hidden).mean(1) for run in length_groups(layout, layout)])


def pool_of(family: str, width: int) -> nn.Sequential:
    """The layer between the first token's vector and a head, which DistilBERT ends otherwise than BERT."""
    linear = nn.Linear(width, width)
    initial.normal(linear)
    return nn.Sequential(linear, nn.ReLU() if family == "distilbert" else nn.Tanh())


def gathered(items: Sequence[Item]) -> Inputs:
    """Rows of items one behind the other, in their order."""
    rows = [row for item in items for row in item.rows]
    starts = [0, *accumulate(map(len, rows))]
    places = None
    if all(row.places is not None for row in rows):
        places = torch.tensor(
            [start + place for start, row in zip(starts, rows, strict=False) for place in row.places or ()]
        )
    segments = torch.tensor([segment for row in rows for segment in row.segments])
    return Inputs(collate([row.ids for row in rows]), segments, places)


def numbers(
    model: Tuned | Seen, items: Sequence[Item], device: torch.device, *, precision: str = "auto"
) -> Iterator[tuple[int, Tensor]]:
    """What the model says of each item, (places, outputs) on the CPU, with the item's place in `items`.

    Items of like length go together, so they come in another order.
    """
    half = half_type(precision, device)
    for group in by_budget([model.length(item) for item in items], BUDGET[device.type]):
        chosen = [items[place] for place in group]
        with evaluating(model), torch.autocast(device.type, half, enabled=half is not None):
            found = model(model.gathered(chosen).to(device)).float().cpu()
        yield from zip(group, found.split(model.sizes(chosen)), strict=True)
