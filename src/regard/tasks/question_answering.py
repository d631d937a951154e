"""Extractive question answering: the part of a context that answers a question, by its first and last token.

A long context is read in overlapping windows. The first token of a sequence stands for "no answer".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.examples import Answer, QuestionExample, is_labeled
from regard.data.readers import holds_squad, read_question_examples
from regard.errors import InputError
from regard.tasks.evaluation.answers import evaluate_answers, no_answer_curve
from regard.tasks.evaluation.parts import TaskEvaluation
from regard.tasks.inputs import InputBuilder, max_context_windows, split_windows
from regard.tasks.metrics import answer_scores, best_threshold
from regard.tasks.task import ColumnKind, ExplainedOutput, Prediction, Task, TaskInput, kl_divergence, pad_rows

MAX_QUESTION_LENGTH = 64  # tokens
MAX_ANSWER_LENGTH = 30
OVERLAP = 128
SPANS_PER_WINDOW = 20
NBEST = 5


class ContextWindow(NamedTuple):
    """A window of a context: index of its first token in the sequence, character offsets, and the tokens it scores."""

    first: int
    offsets: list[tuple[int, int]]
    scored: list[bool]


class ScoredSpan(NamedTuple):
    score: float
    start: int
    end: int


class QuestionAnswering(Task[QuestionExample]):
    """`threshold` is the margin by which the best answer must exceed "no answer"; None if every question has an answer.

    If some questions of the validation data have no answer, the threshold is chosen on that data.
    """

    name: ClassVar[str] = "answer"
    purpose: ClassVar[str] = "Answers questions from a text"
    about: ClassVar[str] = """The span of a context that answers a question.

    Reads SQuAD's JSON, v1.1 and v2, and JSONL and Parquet with question, context and answers, or the names that
    --columns gives. If some questions have no answer, the threshold for no answer is chosen on dev."""
    reader = staticmethod(read_question_examples)
    training_defaults: ClassVar[Mapping[str, object]] = {"num_epochs": 2}
    data_format: ClassVar[str] = "SQuAD JSON, or JSONL with question, context and answers"
    input_hint: ClassVar[str] = (
        "This model answers a question from a text: give the question first, then the text that holds the answer."
    )
    main_metric: ClassVar[str] = "f1"
    transformers_head: ClassVar[str] = "QuestionAnswering"
    output_layer: ClassVar[str] = "qa_outputs"
    pooled: ClassVar[bool] = False
    max_length: ClassVar[int] = 384
    softmax_over_tokens: ClassVar[bool] = True
    num_texts: ClassVar[int | None] = 2
    answer_keys: ClassVar[tuple[str, ...]] = ("answer", "start", "end", "probability")

    def __init__(self, threshold: float | None = None) -> None:
        self.threshold = threshold

    @property
    def num_outputs(self) -> int:
        return 2

    @classmethod
    def has_own_format(cls, path: str | os.PathLike[str]) -> bool:
        return holds_squad(path)

    @classmethod
    def example(cls, text: str, second: str | None = None) -> QuestionExample:
        if second is None:
            raise InputError("answer reads a question and a context; give the context as second text")
        return QuestionExample("", text, second)

    @classmethod
    def texts(cls, example: QuestionExample) -> tuple[str, str | None]:
        return example.question, example.context

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
        """The reader has checked that answers lie in their context."""

    def preprocess(self, examples: Sequence[QuestionExample], builder: InputBuilder) -> list[TaskInput]:
        # Many questions share a context.
        texts = list(dict.fromkeys(example.context for example in examples))
        contexts = dict(zip(texts, builder.tokens(texts), strict=True))
        questions = builder.tokens([example.question for example in examples])
        inputs = []
        for index, (example, encoding) in enumerate(zip(examples, questions, strict=True)):
            context = contexts[example.context]
            question = encoding.ids[: min(MAX_QUESTION_LENGTH, builder.context_length_with_question(0) // 2)]
            room = builder.context_length_with_question(len(question))
            spans = split_windows(len(context), room, min(OVERLAP, room // 2))
            windows = max_context_windows(len(context), spans)
            answer = _answer_tokens(example.answers[0], context.offsets) if example.answers else None
            for number, (start, end) in enumerate(spans):
                sequence, first = builder.question(question, context.ids[start:end])
                scored = [window == number for window in windows[start:end]]
                target = None if not is_labeled(example) else (0, 0)
                if answer is not None and start <= answer[0] and answer[1] < end:
                    target = first + answer[0] - start, first + answer[1] - start
                window = ContextWindow(first, context.offsets[start:end], scored)
                inputs.append(TaskInput((sequence,), index, target, extra=window))
        return inputs

    def targets(self, example: QuestionExample, inputs: TaskInput) -> tuple[str, ...]:
        return "start", "end"

    def logits_and_targets(self, logits: Tensor, inputs: Sequence[TaskInput]) -> tuple[Tensor, Tensor]:
        """The logits of a sequence's tokens to be the first and the last of the answer, (2 x sequences, tokens)."""
        rows = [row for part in torch.split(logits, [len(item) for item in inputs]) for row in part.T]
        return pad_rows(rows), torch.tensor([item.target for item in inputs], device=logits.device).flatten()

    def distillation_loss(
        self, logits: Tensor, teacher_logits: Tensor, inputs: Sequence[TaskInput], temperature: float
    ) -> Tensor:
        """The divergence over the tokens of each sequence."""
        sizes = [len(item) for item in inputs]
        parts = zip(torch.split(logits, sizes), torch.split(teacher_logits, sizes), strict=True)
        return torch.stack([kl_divergence(ours.T, theirs.T, temperature) for ours, theirs in parts]).mean()

    def postprocess(
        self, examples: Sequence[QuestionExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        spans: list[dict[tuple[int, int], float]] = [{} for _ in examples]
        no_answer = [float("inf")] * len(examples)
        for item, part in zip(inputs, logits, strict=True):
            no_answer[item.example] = min(no_answer[item.example], part[0].double().sum().item())
            scores = spans[item.example]
            for score, *characters in _best_spans(part, item.extra):
                start, end = _strip(examples[item.example].context, *characters)
                if start < end:
                    scores[start, end] = max(score, scores.get((start, end), -float("inf")))
        return [self._prediction(*each) for each in zip(examples, spans, no_answer, strict=True)]

    def _prediction(
        self, example: QuestionExample, spans: dict[tuple[int, int], float], no_answer: float
    ) -> Prediction:
        best = sorted((ScoredSpan(score, start, end) for (start, end), score in spans.items()), reverse=True)[:NBEST]
        margin = best[0].score - no_answer if best else None
        if self.threshold is not None or margin is None:
            best = sorted([*best, ScoredSpan(no_answer, 0, 0)], reverse=True)
        probabilities = torch.tensor([span.score for span in best], dtype=torch.double).softmax(-1).tolist()
        listed = [
            {
                "answer": example.context[span.start : span.end],
                "start": span.start,
                "end": span.end,
                "probability": probability,
            }
            for span, probability in zip(best, probabilities, strict=True)
        ]
        prediction = {"id": example.id, "nbest": listed} | ({} if self.threshold is None else {"margin": margin})
        return self._decide(prediction)

    def _decide(self, prediction: Prediction) -> Prediction:
        """Add the answer: the best one, or none if its margin is too small."""
        margin, listed = prediction.get("margin"), prediction["nbest"]
        empty = self.threshold is not None and (margin is None or margin <= self.threshold)
        chosen = next((span for span in listed if (span["answer"] == "") is empty), listed[0])
        rest = {key: value for key, value in prediction.items() if key not in chosen and key != "id"}
        return {"id": prediction["id"], **chosen, **rest}

    def compute_metrics(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        return answer_scores(_truth(examples), {str(index): item["answer"] for index, item in enumerate(predictions)})

    @property
    def prediction_columns(self) -> dict[str, ColumnKind]:
        """The answer (empty if there is none), its characters [start, end) in the context, and its probability."""
        columns: dict[str, ColumnKind] = {"answer": "string", "start": "integer", "end": "integer", "score": "number"}
        return columns if self.threshold is None else {**columns, "margin": "number"}

    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        answer = {name: prediction[name] for name in ("answer", "start", "end")}
        margin = {} if self.threshold is None else {"margin": prediction["margin"]}
        return {**answer, "score": prediction["probability"], **margin}

    def evaluate(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Prediction], *, seed: int = 0
    ) -> TaskEvaluation:
        answers = list(_truth(examples).values())
        curve = None
        if self.threshold is not None and not all(example.answerable for example in examples):
            best = [next((span["answer"] for span in each["nbest"] if span["answer"]), "") for each in predictions]
            margins = [prediction["margin"] for prediction in predictions]
            curve = no_answer_curve(answers, best, margins, self.threshold)
        return evaluate_answers(
            [example.question for example in examples],
            answers,
            [prediction["answer"] for prediction in predictions],
            [prediction["probability"] for prediction in predictions],
            metrics=self.compute_metrics(examples, predictions),
            no_answer=curve,
            seed=seed,
        )

    def explained_outputs(
        self, example: QuestionExample, prediction: Prediction, inputs: TaskInput, tokens: Sequence[str]
    ) -> list[ExplainedOutput]:
        """The tokens where the answer starts and ends; the first token if there is none."""
        window = inputs.extra
        inside = [
            window.first + token
            for token, (start, end) in enumerate(window.offsets)
            if start < prediction["end"] and end > prediction["start"]
        ] or [0]
        ends = ((0, "start", inside[0]), (1, "end", inside[-1]))
        return [ExplainedOutput(f"{name} at {tokens[token]}", index, token) for index, name, token in ends]

    @property
    def has_calibration(self) -> bool:
        return self.threshold is not None

    def with_threshold(self, threshold: float) -> QuestionAnswering:
        return QuestionAnswering(threshold)

    def calibrate(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Prediction]
    ) -> tuple[QuestionAnswering, Sequence[Prediction]]:
        """Choose the threshold with the best F1, unless all questions have an answer."""
        margins = {
            str(index): prediction["margin"]
            for index, prediction in enumerate(predictions)
            if prediction.get("margin") is not None
        }
        if not self.has_calibration or not margins or all(example.answerable for example in examples):
            return self, predictions
        answers = {
            index: next(span["answer"] for span in predictions[int(index)]["nbest"] if span["answer"])
            for index in margins
        }
        task = QuestionAnswering(best_threshold(_truth(examples), answers, margins))
        return task, [task._decide(prediction) for prediction in predictions]


def _truth(examples: Sequence[QuestionExample]) -> dict[str, list[str]]:
    """True answers by index, because the ids in a file need not be unique."""
    return {str(index): [answer.text for answer in example.answers] for index, example in enumerate(examples)}


def _answer_tokens(answer: Answer, offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and the last token of an answer; None if the tokenizer drops all of it."""
    start, end = answer.start, answer.start + len(answer.text)
    inside = [token for token, (a, b) in enumerate(offsets) if a < end and b > start]
    return (inside[0], inside[-1]) if inside else None


def _best_spans(logits: Tensor, window: ContextWindow) -> list[ScoredSpan]:
    """The best spans of a window, in characters, among those that start with a token it scores."""
    if not window.offsets:
        return []
    stop = window.first + len(window.offsets)
    starts, ends = logits[window.first : stop].double().unbind(-1)
    starts = starts.masked_fill(~torch.tensor(window.scored, device=starts.device), -torch.inf)
    # (S, MAX_ANSWER_LENGTH): the logits of the possible ends of each start, its own token first.
    reach = F.pad(ends, (0, MAX_ANSWER_LENGTH - 1), value=-torch.inf).unfold(0, MAX_ANSWER_LENGTH, 1)
    scores = (starts[:, None] + reach).flatten()
    best = scores.topk(min(SPANS_PER_WINDOW, len(scores)))
    spans = []
    for score, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        start, length = divmod(index, MAX_ANSWER_LENGTH)
        if score > -float("inf"):
            spans.append(ScoredSpan(score, window.offsets[start][0], window.offsets[start + length][1]))
    return spans


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without surrounding whitespace, with which GPT's tokens begin."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
