"""Answering: which part of a context answers a question, told by the tokens where it starts and ends.

A long context is read in windows that overlap. Where there is nothing to answer, the first token is meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import Answer, QuestionExample, is_labeled
from regard.tasks.inputs import InputBuilder, max_context_windows, split_windows
from regard.tasks.metrics import answer_scores, best_threshold
from regard.tasks.task import Prediction, Task, TaskInput, kl_divergence

__all__ = ["QuestionAnswering"]

LONGEST_QUESTION = 64  # tokens
LONGEST_ANSWER = 30
OVERLAP = 128
BEST = 20  # spans of a window
NBEST = 5


class ContextWindow(NamedTuple):
    """A part of a context in a row: where its tokens begin there, their characters, and which of them it judges."""

    first: int
    offsets: list[tuple[int, int]]
    owned: list[bool]


class ScoredSpan(NamedTuple):
    score: float
    start: int
    end: int


class QuestionAnswering(Task[QuestionExample]):
    """`threshold`: by how much the best answer must beat no answer at all; None where every question has one.

    It is settled on the data that the task is judged on, where some questions there have no answer.
    """

    name: ClassVar[str] = "answer"
    main_metric: ClassVar[str] = "f1"
    transformers_head: ClassVar[str] = "QuestionAnswering"
    pooled: ClassVar[bool] = False
    max_length: ClassVar[int] = 384

    def __init__(self, threshold: float | None = None) -> None:
        self.threshold = threshold

    @property
    def num_outputs(self) -> int:
        return 2

    @classmethod
    def from_examples(cls, examples: Sequence[QuestionExample]) -> QuestionAnswering:
        return cls(None if all(example.answerable for example in examples) else 0.0)

    def to_dict(self) -> dict[str, Any]:
        return {"threshold": self.threshold}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> QuestionAnswering:
        threshold = document["threshold"]
        return cls(None if threshold is None else float(threshold))

    def check(self, example: QuestionExample) -> None:
        """Any answer that a reader lets through lies in its context."""

    def preprocess(self, examples: Sequence[QuestionExample], rows: InputBuilder) -> list[TaskInput]:
        # Many questions are about one context.
        texts = list(dict.fromkeys(example.context for example in examples))
        contexts = dict(zip(texts, rows.tokens(texts), strict=True))
        questions = rows.tokens([example.question for example in examples])
        items = []
        for owner, (example, asked) in enumerate(zip(examples, questions, strict=True)):
            context = contexts[example.context]
            question = asked.ids[: min(LONGEST_QUESTION, rows.context_length_with_question(0) // 2)]
            room = rows.context_length_with_question(len(question))
            spans = split_windows(len(context), room, min(OVERLAP, room // 2))
            best = max_context_windows(len(context), spans)
            answer = _tokens(example.answers[0], context.offsets) if example.answers else None
            for number, (start, end) in enumerate(spans):
                row, first = rows.question(question, context.ids[start:end])
                owned = [window == number for window in best[start:end]]
                window = ContextWindow(first, context.offsets[start:end], owned)
                target = None if not is_labeled(example) else (0, 0)
                if answer is not None and start <= answer[0] and answer[1] < end:
                    target = first + answer[0] - start, first + answer[1] - start
                items.append(TaskInput((row,), owner, target, extra=window))
        return items

    def loss(self, numbers: Tensor, items: Sequence[TaskInput]) -> Tensor:
        """The mean over items of both cross-entropies, each over the tokens of one row."""
        losses = []
        for part, item in zip(torch.split(numbers, [len(item) for item in items]), items, strict=True):
            losses.append(F.cross_entropy(part.T, torch.tensor(item.target, device=part.device)))
        return torch.stack(losses).mean()

    def distillation_loss(self, numbers: Tensor, wanted: Tensor, items: Sequence[TaskInput], softness: float) -> Tensor:
        """Over the tokens of each row."""
        sizes = [len(item) for item in items]
        parts = zip(torch.split(numbers, sizes), torch.split(wanted, sizes), strict=True)
        return torch.stack([kl_divergence(ours.T, theirs.T, softness) for ours, theirs in parts]).mean()

    def postprocess(
        self, examples: Sequence[QuestionExample], items: Sequence[TaskInput], numbers: Sequence[Tensor]
    ) -> list[Prediction]:
        spans: list[dict[tuple[int, int], float]] = [{} for _ in examples]
        nothing = [float("inf")] * len(examples)
        for item, part in zip(items, numbers, strict=True):
            nothing[item.example] = min(nothing[item.example], part[0].double().sum().item())
            known = spans[item.example]
            for score, *characters in _spans(part, item.extra):
                start, end = _trimmed(examples[item.example].context, *characters)
                if start < end:
                    known[start, end] = max(score, known.get((start, end), -float("inf")))
        return [self._prediction(*each) for each in zip(examples, spans, nothing, strict=True)]

    def _prediction(self, example: QuestionExample, spans: dict[tuple[int, int], float], nothing: float) -> Prediction:
        best = sorted((ScoredSpan(score, start, end) for (start, end), score in spans.items()), reverse=True)[:NBEST]
        margin = best[0].score - nothing if best else None
        if self.threshold is not None or margin is None:
            best = sorted([*best, ScoredSpan(nothing, 0, 0)], reverse=True)
        shares = torch.tensor([span.score for span in best], dtype=torch.double).softmax(-1).tolist()
        listed = [
            {
                "answer": example.context[span.start : span.end],
                "start": span.start,
                "end": span.end,
                "probability": share,
            }
            for span, share in zip(best, shares, strict=True)
        ]
        found = {"id": example.id, "nbest": listed} | ({} if self.threshold is None else {"margin": margin})
        return self._decided(found)

    def _decided(self, prediction: Prediction) -> Prediction:
        """The prediction with what is said: the best of all answers, or nothing where its margin is too small."""
        margin, listed = prediction.get("margin"), prediction["nbest"]
        empty = self.threshold is not None and (margin is None or margin <= self.threshold)
        said = next((one for one in listed if (one["answer"] == "") is empty), listed[0])
        rest = {key: value for key, value in prediction.items() if key not in said and key != "id"}
        return {"id": prediction["id"], **said, **rest}

    def compute_metrics(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        return answer_scores(_truth(examples), {str(place): one["answer"] for place, one in enumerate(predictions)})

    @property
    def has_calibration(self) -> bool:
        return self.threshold is not None

    def calibrate(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Prediction]
    ) -> tuple[QuestionAnswering, Sequence[Prediction]]:
        """With the threshold of the best F1; where all questions have an answer, that would be to answer always."""
        margins = {str(place): one["margin"] for place, one in enumerate(predictions) if one.get("margin") is not None}
        if not self.has_calibration or not margins or all(example.answerable for example in examples):
            return self, predictions
        answers = {
            place: next(one["answer"] for one in predictions[int(place)]["nbest"] if one["answer"]) for place in margins
        }
        task = QuestionAnswering(best_threshold(_truth(examples), answers, margins))
        return task, [task._decided(one) for one in predictions]


def _truth(examples: Sequence[QuestionExample]) -> dict[str, list[str]]:
    """By place: the ids of a file need not differ."""
    return {str(place): [answer.text for answer in example.answers] for place, example in enumerate(examples)}


def _tokens(answer: Answer, offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and the last token of an answer; None where the tokenizer leaves nothing of it."""
    start, end = answer.start, answer.start + len(answer.text)
    inside = [token for token, (a, b) in enumerate(offsets) if a < end and b > start]
    return (inside[0], inside[-1]) if inside else None


def _spans(numbers: Tensor, window: ContextWindow) -> list[ScoredSpan]:
    """The best spans of a window, among those that begin with a token it judges best, as characters."""
    if not window.offsets:
        return []
    stop = window.first + len(window.offsets)
    starts, ends = numbers[window.first : stop].double().unbind(-1)
    starts = starts.masked_fill(~torch.tensor(window.owned, device=starts.device), -torch.inf)
    # (S, LONGEST_ANSWER): the ends that are in reach of each start, its own token first.
    reach = F.pad(ends, (0, LONGEST_ANSWER - 1), value=-torch.inf).unfold(0, LONGEST_ANSWER, 1)
    scores = (starts[:, None] + reach).flatten()
    best = scores.topk(min(BEST, len(scores)))
    found = []
    for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        start, more = divmod(place, LONGEST_ANSWER)
        if score > -float("inf"):
            found.append(ScoredSpan(score, window.offsets[start][0], window.offsets[start + more][1]))
    return found


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without blanks at its ends, which the tokens of a GPT begin with."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
