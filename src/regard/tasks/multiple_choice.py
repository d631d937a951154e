"""Multiple choice: which of several endings follows a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.examples import ChoiceExample
from regard.data.readers import read_choice_examples
from regard.errors import InputError
from regard.tasks.evaluation.labels import evaluate_classes
from regard.tasks.evaluation.parts import TaskEvaluation
from regard.tasks.inputs import InputBuilder
from regard.tasks.metrics import label_scores
from regard.tasks.task import ColumnKind, Prediction, Task, TaskInput, kl_divergence, pad_rows


class MultipleChoice(Task[ChoiceExample]):
    """Each ending with the text before it is one sequence, with one logit."""

    name: ClassVar[str] = "choose"
    purpose: ClassVar[str] = "Chooses the best ending of a text"
    about: ClassVar[str] = """The best of several endings of a text.

    Reads JSONL and Parquet with ctx, endings and label, SWAG's CSV, and text with six lines per example. --columns
    names other keys or columns: the text, the endings (a list, or one column each), the label."""
    reader = staticmethod(read_choice_examples)
    training_defaults: ClassVar[Mapping[str, object]] = {
        "batch_size": 16,
        "base_learning_rate": 1e-4,
        "adversarial_epsilon": 0.0,
    }
    data_format: ClassVar[str] = "JSONL with ctx, endings and label"
    input_hint: ClassVar[str] = "This model chooses an ending: give the endings as second text, one per line."
    main_metric: ClassVar[str] = "accuracy"
    transformers_head: ClassVar[str] = "MultipleChoice"
    pooled: ClassVar[bool] = True
    max_length: ClassVar[int] = 128
    single_sequence: ClassVar[bool] = False
    num_texts: ClassVar[int | None] = 0
    answer_keys: ClassVar[tuple[str, ...]] = ("choice", "ending", "probabilities")

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def transformers_labels(self) -> tuple[str, ...]:
        return ("fits",)

    @classmethod
    def example(cls, text: str, second: str | None = None) -> ChoiceExample:
        if second is None:
            raise InputError("choose reads a text and its endings; give the endings as second text, one per line")
        return ChoiceExample(text, tuple(line.strip() for line in second.splitlines() if line.strip()))

    def check(self, example: ChoiceExample) -> None:
        if len(example.endings) < 2:
            raise InputError(f"expected at least two endings to choose from, got {len(example.endings)}")
        if example.label is not None and not 0 <= example.label < len(example.endings):
            raise InputError(
                f"the correct ending is number {example.label}, and there are {len(example.endings)} endings"
            )

    def preprocess(self, examples: Sequence[ChoiceExample], builder: InputBuilder) -> list[TaskInput]:
        pairs = [(example.text, ending) for example in examples for ending in example.endings]
        sequences = iter(builder.sequences(pairs))
        inputs = []
        for index, example in enumerate(examples):
            self.check(example)
            inputs.append(TaskInput(tuple(next(sequences) for _ in example.endings), index, example.label))
        return inputs

    def logits_and_targets(self, logits: Tensor, inputs: Sequence[TaskInput]) -> tuple[Tensor, Tensor]:
        """The logits of the endings, (texts, endings), and the indices of the right ones."""
        rows = pad_rows(torch.split(logits.squeeze(-1), [len(item.sequences) for item in inputs]))
        return rows, torch.tensor([item.target for item in inputs], device=logits.device)

    def distillation_loss(
        self, logits: Tensor, teacher_logits: Tensor, inputs: Sequence[TaskInput], temperature: float
    ) -> Tensor:
        """The divergence over the endings of each text."""
        sizes = [len(item.sequences) for item in inputs]
        parts = zip(torch.split(logits, sizes), torch.split(teacher_logits, sizes), strict=True)
        return torch.stack([kl_divergence(ours.T, theirs.T, temperature) for ours, theirs in parts]).mean()

    def postprocess(
        self, examples: Sequence[ChoiceExample], inputs: Sequence[TaskInput], logits: Sequence[Tensor]
    ) -> list[Prediction]:
        predictions = []
        for example, part in zip(examples, logits, strict=True):
            probabilities = part.squeeze(-1).double().softmax(-1).tolist()
            best = max(range(len(probabilities)), key=probabilities.__getitem__)
            predictions.append(
                {"text": example.text, "choice": best, "ending": example.endings[best], "probabilities": probabilities}
            )
        return predictions

    @property
    def prediction_columns(self) -> dict[str, ColumnKind]:
        """The index of the best ending, the ending, its probability, and the probabilities of all endings."""
        return {"choice": "integer", "ending": "string", "probability": "number", "probabilities": "numbers"}

    def to_columns(self, prediction: Prediction) -> dict[str, Any]:
        choice, probabilities = prediction["choice"], prediction["probabilities"]
        return {
            "choice": choice,
            "ending": prediction["ending"],
            "probability": probabilities[choice],
            "probabilities": probabilities,
        }

    def compute_metrics(self, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [str(example.label) for example in examples]
        return {"accuracy": label_scores(truth, [str(prediction["choice"]) for prediction in predictions])["accuracy"]}

    def evaluate(
        self, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction], *, seed: int = 0
    ) -> TaskEvaluation:
        """The classes are the positions of the endings, from 0."""
        probabilities = np.zeros((len(examples), max(len(example.endings) for example in examples)))
        for row, prediction in zip(probabilities, predictions, strict=True):
            row[: len(prediction["probabilities"])] = prediction["probabilities"]
        truth = np.array([example.label for example in examples], dtype=np.int64)
        labels = [str(number) for number in range(probabilities.shape[1])]
        metrics = self.compute_metrics(examples, predictions)
        return evaluate_classes(truth, probabilities, labels, metrics=metrics, seed=seed)
