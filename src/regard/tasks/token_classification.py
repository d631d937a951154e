"""Token classification (named entity recognition): a tag for each word, and the entities that the tags form.

A word is classified at its first token. A long text is read in overlapping windows, and each word is classified in the
window with the most context around it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.data.examples import TaggedExample
from regard.data.readers import holds_tagged_words, read_tagged_examples, split_words
from regard.errors import InputError
from regard.tasks.evaluation.entities import evaluate_entities
from regard.tasks.evaluation.parts import TaskEvaluation
from regard.tasks.inputs import InputBuilder, max_context_windows, split_windows
from regard.tasks.metrics import entities, entity_scores
from regard.tasks.task import (
    ColumnKind,
    ExplainedOutput,
    LabelTask,
    Prediction,
    TaskInput,
    read_labels,
)

OUTSIDE = "O"
OVERLAP = 64  # tokens shared with the previous window


class TokenClassification(LabelTask[TaggedExample]):
    name: ClassVar[str] = "tag"
    purpose: ClassVar[str] = "Marks entities in texts"
    about: ClassVar[str] = """Entities in a text: persons, places, organizations.

    Reads CoNLL's columns, the word first and its tag last, in IOB1, IOB2 or BIOES, with a blank line between sentences;
    and JSONL and Parquet with words and tags. --columns 0,2 names the columns of word and tag."""
    reader = staticmethod(read_tagged_examples)
    training_defaults: ClassVar[Mapping[str, object]] = {"num_epochs": 5}
    data_format: ClassVar[str] = "CoNLL columns: a word first, its tag last, and a blank line between sentences"
    main_metric: ClassVar[str] = "f1"
    transformers_head: ClassVar[str] = "TokenClassification"
    pooled: ClassVar[bool] = False
    max_length: ClassVar[int] = 256
    answer_keys: ClassVar[tuple[str, ...]] = ("entities", "tags")

    @classmethod
    def has_own_format(cls, path: str | os.PathLike[str]) -> bool:
        return holds_tagged_words(path)

    @classmethod
    def example(cls, text: str, second: str | None = None) -> TaggedExample:
        if second is not None:
            raise InputError("tag reads one text, and two were given; leave the second out")
        return TaggedExample(text, split_words(text))

    @classmethod
    def texts(cls, example: TaggedExample) -> tuple[str, str | None]:
        if split_words(example.text) != example.words:
            raise InputError("the file has its own words, and evidence is for those that Regard finds in a text")
        return example.text, None

    @classmethod
    def from_examples(cls, examples: Sequence[TaggedExample]) -> TokenClassification:
        types = {tag[2:] for example in examples for tag in example.tags or () if tag != OUTSIDE}
        if not types:
            raise InputError(f"expected entities, and all tags of the training data are {OUTSIDE!r}")
        return cls([OUTSIDE, *(f"{prefix}-{kind}" for kind in sorted(types) for prefix in "BI")])

    def to_dict(self) -> dict[str, Any]:
        return {"labels": list(self._labels)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TokenClassification:
        return cls(read_labels(document))

    def check(self, example: TaggedExample) -> None:
        self._targets(example)

    def preprocess(self, examples: Sequence[TaggedExample], builder: InputBuilder) -> list[TaskInput]:
        inputs = []
        encodings = builder.tokens([example.text for example in examples])
        for index, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            tokens_of_words = first_tokens(example, encoding.offsets)
            targets = self._targets(example)
            spans = split_windows(len(encoding), builder.context_length, min(OVERLAP, builder.context_length // 2))
            windows = max_context_windows(len(encoding), spans)
            for number, group in groupby(tokens_of_words, key=windows.__getitem__):
                start, end = spans[number]
                tokens = list(group)
                words = [tokens_of_words[token] for token in tokens]
                sequence = builder.window(encoding.ids[start:end], [token - start for token in tokens])
                target = targets and [targets[word] for word in words]
                inputs.append(TaskInput((sequence,), index, target, extra=words))
        return inputs

    def _targets(self, example: TaggedExample) -> list[int] | None:
        return None if example.tags is None else [self._label_id(tag) for tag in example.tags]

    def words_of(self, inputs: TaskInput) -> Iterable[int]:
        """The words that are tagged in an input, by their indices in the example."""
        words: list[int] = inputs.extra
        return words

    def targets(self, example: TaggedExample, inputs: TaskInput) -> tuple[str, ...]:
        return tuple(example.text[slice(*example.words[word])] for word in inputs.extra)

    def target_tensor(self, inputs: Sequence[TaskInput]) -> Tensor:
        return torch.tensor([target for item in inputs for target in item.target])

    def postprocess(
        self, examples: Sequence[TaggedExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        tags = [[OUTSIDE] * len(example.words) for example in examples]
        probabilities = [[1.0] * len(example.words) for example in examples]
        for item, part in zip(inputs, logits, strict=True):
            best = part.double().softmax(-1).max(-1)
            for word, probability, label in zip(item.extra, best.values.tolist(), best.indices.tolist(), strict=True):
                tags[item.example][word], probabilities[item.example][word] = self._labels[label], probability
        return [entity_prediction(*each) for each in zip(examples, tags, probabilities, strict=True)]

    @property
    def prediction_columns(self) -> dict[str, ColumnKind]:
        """The entities: objects with text, label, start, end and score."""
        return {"entities": "entities"}

    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        keys = {"text": "text", "label": "label", "start": "start", "end": "end", "score": "probability"}
        return {"entities": [{name: one[key] for name, key in keys.items()} for one in prediction["entities"]]}

    def explained_outputs(
        self, example: TaggedExample, prediction: Prediction, inputs: TaskInput, tokens: Sequence[str]
    ) -> list[ExplainedOutput]:
        """The first word of each entity."""
        starts = {start: word for word, (start, _) in enumerate(example.words)}
        outputs = []
        for entity in prediction["entities"]:
            word = starts[entity["start"]]
            if word in inputs.extra:
                tag = prediction["tags"][word]
                about = f"{tag} at {example.text[slice(*example.words[word])]}"
                outputs.append(ExplainedOutput(about, inputs.extra.index(word), self._label_id(tag)))
        return outputs

    def compute_metrics(self, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [list(example.tags or ()) for example in examples]
        return entity_scores(truth, [prediction["tags"] for prediction in predictions])

    def evaluate(
        self, examples: Sequence[TaggedExample], predictions: Sequence[Prediction], *, seed: int = 0
    ) -> TaskEvaluation:
        return evaluate_entities(
            [list(example.tags or ()) for example in examples],
            [prediction["tags"] for prediction in predictions],
            [[example.text[slice(*word)] for word in example.words] for example in examples],
            [[entity["probability"] for entity in prediction["entities"]] for prediction in predictions],
            metrics=self.compute_metrics(examples, predictions),
            seed=seed,
        )


def first_tokens(example: TaggedExample, offsets: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The first token of each word -> the word, by the offsets of all tokens. Words without a token are left out."""
    result: dict[int, int] = {}
    word = 0
    for token, (start, end) in enumerate(offsets):
        while word < len(example.words) and example.words[word][1] <= start:
            word += 1
        if word == len(example.words):
            break
        if end > example.words[word][0]:
            result[token] = word
            word += 1
    return result


def entity_prediction(example: TaggedExample, tags: list[str], probabilities: list[float]) -> Prediction:
    """The tags of the words and the entities that they form."""
    listed = []
    for entity in entities(tags):
        start, end = example.words[entity.start][0], example.words[entity.end - 1][1]
        probability = sum(probabilities[entity.start : entity.end]) / (entity.end - entity.start)
        text = example.text[start:end]
        listed.append({"start": start, "end": end, "text": text, "label": entity.label, "probability": probability})
    return {"text": example.text, "entities": listed, "tags": tags}
