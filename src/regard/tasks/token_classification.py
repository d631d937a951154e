"""Tagging: a tag for each word, and the entities that tags of one kind in a row make.

A word is judged by its first piece. A text that is too long is read in windows that overlap, and each word is judged
in the window that shows most of what is around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import TaggedExample
from regard.errors import InputError
from regard.tasks.inputs import InputBuilder, max_context_windows, split_windows
from regard.tasks.metrics import entities, entity_scores
from regard.tasks.task import LabelTask, Prediction, TaskInput, read_labels
from regard.text import Encoding

__all__ = ["TokenClassification"]

OUTSIDE = "O"
OVERLAP = 64  # tokens that a window shares with the one before


class TokenClassification(LabelTask[TaggedExample]):
    name: ClassVar[str] = "tag"
    main_metric: ClassVar[str] = "f1"
    transformers_head: ClassVar[str] = "TokenClassification"
    pooled: ClassVar[bool] = False
    max_length: ClassVar[int] = 256

    @classmethod
    def from_examples(cls, examples: Sequence[TaggedExample]) -> TokenClassification:
        kinds = {tag[2:] for example in examples for tag in example.tags or () if tag != OUTSIDE}
        if not kinds:
            raise InputError(f"expected entities to find, and all tags of the training data are {OUTSIDE!r}")
        return cls([OUTSIDE, *(f"{mark}-{kind}" for kind in sorted(kinds) for mark in "BI")])

    def to_dict(self) -> dict[str, Any]:
        return {"labels": list(self._labels)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TokenClassification:
        return cls(read_labels(document))

    def check(self, example: TaggedExample) -> None:
        self._targets(example)

    def preprocess(self, examples: Sequence[TaggedExample], rows: InputBuilder) -> list[TaskInput]:
        items = []
        encodings = rows.tokens([example.text for example in examples])
        for owner, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            heads = _heads(example, encoding)
            targets = self._targets(example)
            spans = split_windows(len(encoding), rows.context_length, min(OVERLAP, rows.context_length // 2))
            owned = max_context_windows(len(encoding), spans)
            for number, mine in groupby(heads, key=owned.__getitem__):
                start, end = spans[number]
                tokens = list(mine)
                words = [heads[token] for token in tokens]
                row = rows.window(encoding.ids[start:end], [token - start for token in tokens])
                items.append(TaskInput((row,), owner, targets and [targets[word] for word in words], extra=words))
        return items

    def _targets(self, example: TaggedExample) -> list[int] | None:
        return None if example.tags is None else [self._place(tag) for tag in example.tags]

    def loss(self, numbers: Tensor, items: Sequence[TaskInput]) -> Tensor:
        targets = torch.tensor([target for item in items for target in item.target], device=numbers.device)
        return F.cross_entropy(numbers, targets)

    def postprocess(
        self, examples: Sequence[TaggedExample], items: Sequence[TaskInput], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        tags = [[OUTSIDE] * len(example.words) for example in examples]
        shares = [[1.0] * len(example.words) for example in examples]
        for item, part in zip(items, numbers, strict=True):
            best = part.double().softmax(-1).max(-1)
            for word, share, place in zip(item.extra, best.values.tolist(), best.indices.tolist(), strict=True):
                tags[item.example][word], shares[item.example][word] = self._labels[place], share
        return [_prediction(*each) for each in zip(examples, tags, shares, strict=True)]

    def compute_metrics(self, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        found = entity_scores([list(example.tags or ()) for example in examples], [one["tags"] for one in predictions])
        return {name: value for name, value in found.items() if isinstance(value, float)}


def _heads(example: TaggedExample, encoding: Encoding) -> dict[int, int]:
    """The first token of each word, and the word. A word that the tokenizer leaves nothing of has none."""
    heads: dict[int, int] = {}
    word = 0
    for token, (start, end) in enumerate(encoding.offsets):
        while word < len(example.words) and example.words[word][1] <= start:
            word += 1
        if word == len(example.words):
            break
        if end > example.words[word][0]:
            heads[token] = word
            word += 1
    return heads


def _prediction(example: TaggedExample, tags: list[str], shares: list[float]) -> Prediction:
    found = []
    for entity in entities(tags):
        start, end = example.words[entity.start][0], example.words[entity.end - 1][1]
        share = sum(shares[entity.start : entity.end]) / (entity.end - entity.start)
        found.append(
            {
                "start": start,
                "end": end,
                "text": example.text[start:end],
                "label": entity.label,
                "probability": share,
            }
        )
    return {"text": example.text, "entities": found, "tags": tags}
