"""Evaluations of every task, of predictions that are made up."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.data.examples import Answer, ChoiceExample, QuestionExample, TaggedExample, TextExample
from regard.data.readers import ExampleSet, split_words
from regard.tasks.evaluation.evaluate import evaluation_result
from regard.tasks.evaluation.result import EvaluationResult
from regard.tasks.metrics import entities
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification

__all__ = ["RESULTS", "two_classes"]


def _evaluated(
    task: Task[Any], examples: list[Any], predictions: list[dict[str, Any]], **options: Any
) -> EvaluationResult:
    lines = [number + 2 for number in range(len(examples))]
    read = ExampleSet(examples, "dev.tsv", "tab-separated", {}, lines)
    result = evaluation_result(task, read, predictions, name="my-model", **options)
    result.with_reproduction("regard evaluate my-model --data dev.tsv", "regard.evaluate(...)")
    return result


def two_classes(n: int = 60, **options: Any) -> EvaluationResult:
    generator = np.random.default_rng(0)
    truth = generator.integers(2, size=n)
    spam = np.clip(generator.normal(0.3 + 0.4 * truth, 0.25), 0.01, 0.99)
    examples = [
        TextExample(f"message {i}\twith <b>tags</b> & “quotes”", label=("ham", "spam")[t]) for i, t in enumerate(truth)
    ]
    predictions = [
        {"label": "spam" if p > 0.5 else "ham", "probabilities": {"ham": 1 - p, "spam": p}} for p in spam.tolist()
    ]
    task = TextClassification(["ham", "spam"], positive_label="spam")
    return _evaluated(task, examples, predictions, **options)


def many_classes() -> EvaluationResult:
    generator = np.random.default_rng(1)
    labels = [f"class {i:02}" for i in range(40)]
    probabilities = generator.dirichlet(np.full(40, 0.1), size=200)
    truth = [labels[generator.choice(40, p=row)] for row in probabilities]
    examples = [TextExample(f"premise {i}", f"hypothesis {i}", label) for i, label in enumerate(truth)]
    predictions = [
        {"label": labels[row.argmax()], "probabilities": dict(zip(labels, row.tolist(), strict=True))}
        for row in probabilities
    ]
    return _evaluated(PairClassification(labels), examples, predictions)


def label_sets() -> EvaluationResult:
    generator = np.random.default_rng(2)
    labels = ["toxic", "insult", "threat"]
    probabilities = generator.random((50, 3))
    truth = generator.random((50, 3)) < probabilities
    names = np.array(labels)
    examples = [TextExample(f"comment {i}", label=tuple(names[row].tolist())) for i, row in enumerate(truth)]
    predictions = [
        {"label": names[row >= 0.5].tolist(), "probabilities": dict(zip(labels, row.tolist(), strict=True))}
        for row in probabilities
    ]
    return _evaluated(TextClassification(labels, multi_label=True), examples, predictions)


def numbers() -> EvaluationResult:
    generator = np.random.default_rng(3)
    truth = generator.integers(6, size=80).astype(float)
    predicted = truth + generator.normal(0.2, 0.8, 80)
    examples = [TextExample(f"first {i}", f"second {i}", float(value)) for i, value in enumerate(truth)]
    return _evaluated(Regression(2.5, 1.5), examples, [{"value": value} for value in predicted.tolist()])


def choices() -> EvaluationResult:
    generator = np.random.default_rng(4)
    examples = [ChoiceExample(f"He opened {i}", ("a", "b", "c", "d")[: 3 + i % 2], i % 3) for i in range(40)]
    rows = [generator.dirichlet(np.ones(len(example.endings))).tolist() for example in examples]
    predictions = [{"choice": int(np.argmax(row)), "probabilities": row} for row in rows]
    return _evaluated(MultipleChoice(), examples, predictions)


def tags() -> EvaluationResult:
    generator = np.random.default_rng(5)
    text = "John Smith left Paris for the United Nations in May"
    true = ("B-PER", "I-PER", "O", "B-LOC", "O", "O", "B-ORG", "I-ORG", "O", "O")
    task = TokenClassification(["O", *(f"{prefix}-{kind}" for kind in ("LOC", "ORG", "PER") for prefix in "BI")])
    examples, predictions = [], []
    for _ in range(30):
        guess = [tag if generator.random() < 0.8 else "B-LOC" for tag in true]
        examples.append(TaggedExample(text, split_words(text), true))
        found = [{"probability": float(generator.random())} for _ in entities(guess)]
        predictions.append({"tags": guess, "entities": found})
    return _evaluated(task, examples, predictions)


def answers() -> EvaluationResult:
    generator = np.random.default_rng(6)
    words = ["who", "what", "when", "where", "why", "how", "how many", "name"]
    examples, predictions = [], []
    task = QuestionAnswering(0.0)
    for i in range(60):
        has = bool(generator.random() < 0.7)
        given = (Answer("red fox", 4),) if has else ()
        context = "The red fox ran over the green hill in the year 1900."
        examples.append(QuestionExample(str(i), f"{words[i % 8].capitalize()} ran {i}?", context, given, has))
        best = ("red fox", "The red fox", "green hill")[int(generator.integers(3))]
        margin = float(generator.normal(1.0 if has else -1.0, 1.5))
        answer = best if margin > 0 else ""
        nbest = [{"answer": best, "probability": 0.6}, {"answer": "", "probability": 0.4}]
        predictions.append(
            {"answer": answer, "probability": float(generator.random()), "margin": margin, "nbest": nbest}
        )
    return _evaluated(task, examples, predictions)


RESULTS = {
    "classify": two_classes,
    "pair": many_classes,
    "labels": label_sets,
    "regress": numbers,
    "choose": choices,
    "tag": tags,
    "answer": answers,
}
