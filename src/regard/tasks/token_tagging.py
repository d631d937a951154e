"""Published models that tag tokens: the tags of all tokens, joined to entities as transformers' pipeline joins them.

A model that Regard trains tags words at their first token; others tag every token, and the `aggregation` says what the
tokens of a word and the words of an entity become together. Words of labeled data are tagged at their first token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from regard.data.examples import TaggedExample
from regard.data.readers import is_tag, to_iob2
from regard.errors import InputError, check_choice
from regard.tasks.inputs import InputBuilder, max_context_windows, split_windows
from regard.tasks.task import ExplainedOutput, Prediction, Task, TaskInput, config_labels
from regard.tasks.token_classification import OUTSIDE, OVERLAP, TokenClassification, entity_prediction, first_tokens
from regard.text import Encoding, Tokenizer

Aggregation = Literal["none", "simple", "first", "average", "max"]


class TokenWindow(NamedTuple):
    """The tokens of a text that one window predicts, and what is known of all tokens of the text."""

    tokens: list[int]
    offsets: list[tuple[int, int]]
    continues: list[bool]  # the word of the token before
    words: dict[int, int]  # the first token of each word that is in this window


class TaggedSpan(NamedTuple):
    """A token, or a word of several tokens, with the probability of each label."""

    start: int
    end: int
    probabilities: Tensor


class TokenTagging(TokenClassification):
    """A tag for each token. Users see it as the task `tag`."""

    purpose: ClassVar[str] = "Marks entities in texts"

    def __init__(self, labels: Sequence[str], aggregation: Aggregation = "simple") -> None:
        check_choice("aggregation", aggregation, get_args(Aggregation))
        super().__init__(labels)
        self.aggregation = aggregation
        self._types = {label[2:] for label in labels if is_tag(label)} - {""}
        self._scheme: Any = "BIOES" if any(label[:2] in ("E-", "S-", "L-", "U-") for label in labels) else "IOB2"

    @classmethod
    def from_config(cls, document: Mapping[str, Any]) -> TokenTagging:
        return cls(config_labels(document))

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "aggregation": self.aggregation}

    def with_aggregation(self, aggregation: str) -> TokenTagging:
        check_choice("aggregation", aggregation, get_args(Aggregation))
        return TokenTagging(self.labels, aggregation)  # type: ignore[arg-type]

    def continued(self, learned: Task[Any]) -> Task[Any] | None:
        """The tags of the data must be among those of the model."""
        fits = isinstance(learned, TokenClassification) and {*learned.labels} <= {*self.labels}
        return TokenClassification(self.labels) if fits else None

    def check(self, example: TaggedExample) -> None:
        for tag in example.tags or ():
            if tag != OUTSIDE and tag[2:] not in self._types:
                known = ", ".join(sorted(self._types)) or "none"
                raise InputError(f"the tag {tag!r} is of no type that the model tags; its types are {known}")

    def preprocess(self, examples: Sequence[TaggedExample], builder: InputBuilder) -> list[TaskInput]:
        inputs = []
        encodings = builder.tokens([example.text for example in examples])
        for index, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            continues = continued_words(example.text, encoding, builder.tokenizer)
            words = first_tokens(example, encoding.offsets)
            spans = split_windows(len(encoding), builder.context_length, min(OVERLAP, builder.context_length // 2))
            windows = max_context_windows(len(encoding), spans)
            for number, group in groupby(range(len(encoding)), key=windows.__getitem__):
                start, end = spans[number]
                tokens = list(group)
                sequence = builder.window(encoding.ids[start:end], [token - start for token in tokens])
                inside = {token: words[token] for token in tokens if token in words}
                inputs.append(
                    TaskInput((sequence,), index, None, TokenWindow(tokens, encoding.offsets, continues, inside))
                )
        return inputs

    def words_of(self, inputs: TaskInput) -> Iterable[int]:
        window: TokenWindow = inputs.extra
        return window.words.values()

    def targets(self, example: TaggedExample, inputs: TaskInput) -> tuple[str, ...]:
        window: TokenWindow = inputs.extra
        return tuple(example.text[slice(*window.offsets[token])] for token in window.tokens)

    def postprocess(
        self, examples: Sequence[TaggedExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        rows: list[dict[int, Tensor]] = [{} for _ in examples]
        windows: list[list[TokenWindow]] = [[] for _ in examples]
        for item, part in zip(inputs, logits, strict=True):
            windows[item.example].append(item.extra)
            rows[item.example] |= zip(item.extra.tokens, part.double().softmax(-1), strict=True)
        return [self._tagged(*each) for each in zip(examples, rows, windows, strict=True)]

    def _tagged(self, example: TaggedExample, rows: Mapping[int, Tensor], windows: Sequence[TokenWindow]) -> Prediction:
        tags, probabilities = [OUTSIDE] * len(example.words), [1.0] * len(example.words)
        for window in windows:
            for token, word in window.words.items():
                best = rows[token].max(-1)
                tags[word], probabilities[word] = self._labels[int(best.indices)], float(best.values)
        if all(map(is_tag, tags)):
            tags = to_iob2(tags, self._scheme)
        if example.tags is not None:  # words of labeled data, which the metrics compare
            return entity_prediction(example, tags, probabilities)
        offsets, continues = (windows[0].offsets, windows[0].continues) if windows else ([], [])
        spans = [TaggedSpan(*offsets[token], rows[token]) for token in sorted(rows)]
        return {"text": example.text, "entities": self._entities(example.text, spans, continues), "tags": tags}

    def _entities(self, text: str, spans: list[TaggedSpan], continues: Sequence[bool]) -> list[dict[str, Any]]:
        """Join tokens to words and words to entities."""
        if self.aggregation not in ("none", "simple"):
            words: list[list[TaggedSpan]] = []
            for span, inside in zip(spans, continues, strict=True):
                if inside and words:
                    words[-1].append(span)
                else:
                    words.append([span])
            spans = [TaggedSpan(word[0].start, word[-1].end, self._word(word)) for word in words]
        groups: list[tuple[str, list[tuple[TaggedSpan, float]]]] = []
        last = ""
        for span in spans:
            best = span.probabilities.max(-1)
            label, scored = self._labels[int(best.indices)], (span, float(best.values))
            # As in transformers, only B- begins an entity beside one of the same type.
            kind = label[2:] if label.startswith(("B-", "I-")) else label
            if self.aggregation != "none" and groups and kind == last and not label.startswith("B-"):
                groups[-1][1].append(scored)
            else:
                groups.append((label if self.aggregation == "none" else label.split("-", 1)[-1], [scored]))
            last = kind
        return [
            {
                "start": members[0][0].start,
                "end": members[-1][0].end,
                "text": text[members[0][0].start : members[-1][0].end],
                "label": label,
                "probability": sum(score for _, score in members) / len(members),
            }
            for label, members in groups
            if label != OUTSIDE
        ]

    def _word(self, tokens: Sequence[TaggedSpan]) -> Tensor:
        """The probabilities of a word of these tokens."""
        if self.aggregation == "first":
            return tokens[0].probabilities
        if self.aggregation == "max":
            return max((token.probabilities for token in tokens), key=lambda row: float(row.max()))
        return torch.stack([token.probabilities for token in tokens]).mean(0)

    def explained_outputs(
        self, example: TaggedExample, prediction: Prediction, inputs: TaskInput, tokens: Sequence[str]
    ) -> list[ExplainedOutput]:
        """The first token of each entity, with the first label of its type."""
        window: TokenWindow = inputs.extra
        starts = {window.offsets[token][0]: index for index, token in reversed([*enumerate(window.tokens)])}
        labels = {name: label for label in reversed(self._labels) for name in (label.split("-", 1)[-1], label)}
        outputs = []
        for entity in prediction["entities"]:
            if entity["start"] in starts:
                label = labels[entity["label"]]
                about = f"{label} at {entity['text']}"
                outputs.append(ExplainedOutput(about, starts[entity["start"]], self._label_id(label)))
        return outputs


def continued_words(text: str, encoding: Encoding, tokenizer: Tokenizer) -> list[bool]:
    """Whether each token continues the word of the token before, by the rules of transformers' pipeline.

    A vocabulary with a mark of continuation, such as WordPiece's ##, decides it; otherwise the space before a token.
    """
    marked, unknown = tokenizer.marks_continuation, tokenizer.unk_token_id
    return [
        number != unknown
        and (len(token) != end - start if marked else start > 0 and " " not in text[start - 1 : start + 1])
        for number, token, (start, end) in zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True)
    ]
