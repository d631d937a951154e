"""`TextClassifier` and `Tagger`: scikit-learn estimators that fine-tune a model.

They work in pipelines, parameter searches and cross-validation. Nothing is written to disk, and no validation data is
set aside.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from regard.checkpoints import loading
from regard.data.examples import Example, TaggedExample, TextExample
from regard.data.labels import is_missing, is_missing_label, similar_labels
from regard.data.text_inputs import check_columns, read_column, read_texts, remember_columns
from regard.device import choose_device
from regard.errors import InputError, check_choice
from regard.events import drain
from regard.known import DEFAULT_MODEL
from regard.parameters import EstimatorParameters
from regard.tasks.fine_tuned_model import predict
from regard.tasks.metrics import entity_scores
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.training.recipes.finetuning.baseline import new_trainer
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.model_factory import ModelFactory
from regard.wording import count_of


class _FineTunedEstimator(EstimatorParameters):
    """The common parameters and the training of both estimators. Settings that are None are those of `regard train`.

    `missing`: rows of `fit` without a text or a label (None, NaN) are an error by default; "skip" leaves them out with
    a warning that counts them.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        frozen: bool = False,
        max_length: int | None = None,
        missing: Literal["error", "skip"] = "error",
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.frozen = frozen
        self.max_length = max_length
        self.missing = missing
        self.seed = seed
        self.device = device

    def _fit(self, task: Task[Any], examples: Sequence[Example]) -> None:
        values = {"num_epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
        given = [f"training.{name}={value}" for name, value in values.items() if value is not None]
        overrides = [*given, f"training.frozen={str(self.frozen).lower()}", "training.select=last"]
        config = FineTuningConfig.load(overrides=overrides, defaults={"training": task.training_defaults})
        factory = ModelFactory(task, *loading.load(self.model), length=self.max_length or 0)
        factory.folder = loading.find_folder(self.model)
        trainer = new_trainer(factory, examples, config, seed=self.seed, device=choose_device(self.device))
        drain(trainer.train())
        self.fine_tuned_ = factory.fine_tuned_model(trainer.whole_model().eval())

    def _predictions(self, examples: Sequence[Example]) -> list[dict[str, Any]]:
        if not self.__sklearn_is_fitted__():
            raise InputError(f"this {type(self).__name__} is not fitted; call fit first")
        counted = self.fine_tuned_.counted()
        found = predict(counted.loaded.fine_tuned, examples, device=choose_device(self.device)) if examples else []
        counted.warn(str(self.model))
        return found

    def _present_rows(self, texts: Sequence[object], labels: Sequence[object]) -> list[int]:
        """The rows with a text and a label; others are an error, or skipped with a warning."""
        check_choice("way with missing texts and labels", self.missing, ("error", "skip"))
        no_text = [row for row, text in enumerate(texts) if text is None]
        no_label = [row for row, label in enumerate(labels) if is_missing_label(label)]
        left_out = sorted({*no_text, *no_label})
        if left_out:
            found = [
                f"{count_of(len(rows), 'row')} without a {what} (row {', '.join(map(str, rows[:5]))}"
                f"{', ...' if len(rows) > 5 else ''})"
                for what, rows in (("text", no_text), ("label", no_label))
                if rows
            ]
            if self.missing == "error":
                raise InputError(
                    f"{' and '.join(found)}: fill them, drop these rows, or leave them out with "
                    f"{type(self).__name__}(missing='skip')"
                )
            warnings.warn(
                f"{len(left_out):,} of {len(labels):,} rows are left out: {' and '.join(found)}", stacklevel=3
            )
        rows = sorted(set(range(len(labels))) - set(left_out))
        if not rows:
            raise InputError("there are no texts with a label; expected at least one")
        return rows

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fine_tuned_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True),
            input_tags=InputTags(two_d_array=False, one_d_array=True, string=True),
        )


class TextClassifier(_FineTunedEstimator):
    """Classifies texts, or pairs of texts. `classes_` are the labels in the order of `predict_proba`.

    X is a list, tuple or generator of texts or pairs, a Series, an array (n), (n, 1) or (n, 2), or a DataFrame with one
    column, or two for pairs.
    """

    def fit(self, X: Any, y: Any) -> TextClassifier:
        inputs, labels = read_texts(X, pairs=True, estimator="TextClassifier"), read_column(y)
        if len(inputs.texts) != len(labels):
            raise InputError(f"expected a label for each text, got {len(inputs.texts)} texts and {len(labels)} labels")
        remember_columns(self, inputs)
        rows = self._present_rows(inputs.texts, labels)
        texts = [_example(inputs.texts[row]) for row in rows]
        targets = np.asarray([labels[row] for row in rows])
        self.classes_, counts = np.unique(targets, return_counts=True)
        for message in similar_labels(dict(zip(self._names(), counts.tolist(), strict=True))):
            warnings.warn(message, stacklevel=2)
        examples = [replace(text, label=str(label)) for text, label in zip(texts, targets, strict=True)]
        kind = PairClassification if any(text.text_pair is not None for text in texts) else TextClassification
        self._fit(kind(self._names()) if len(self.classes_) > 1 else kind.from_examples(examples), examples)
        return self

    def predict(self, X: Any) -> Any:
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Any:
        """The probabilities of the classes, (n, classes)."""
        inputs = read_texts(X, pairs=True, estimator="TextClassifier")
        check_columns(self, inputs)
        predictions = self._predictions([_example(text) for text in inputs.present()])
        rows = [list(prediction["probabilities"].values()) for prediction in predictions]
        return np.array(rows).reshape(len(rows), len(self.classes_))

    def score(self, X: Any, y: Any) -> float:
        """The accuracy."""
        return float(np.mean(self.predict(X) == np.asarray(read_column(y))))

    def _names(self) -> list[str]:
        return [str(label) for label in self.classes_]

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags


WORDS, TAGS = "sentences as lists of words", "lists of tags"


class Tagger(_FineTunedEstimator):
    """Tags words: X holds sentences as lists of words, y their IOB2 tags."""

    def fit(self, X: Any, y: Any) -> Tagger:
        sentences, tags = (_without_missing(read_column(value, what)) for value, what in ((X, WORDS), (y, TAGS)))
        if len(sentences) != len(tags):
            raise InputError(f"expected tags for each sentence, got {len(sentences)} sentences and {len(tags)} tags")
        rows = self._present_rows(sentences, tags)
        examples = [_sentence(sentences[row], tags[row]) for row in rows]
        self._fit(TokenClassification.from_examples(examples), examples)
        return self

    def predict(self, X: Any) -> list[list[str]]:
        sentences = [_sentence(words, None, row) for row, words in enumerate(read_column(X, WORDS))]
        return [list(prediction["tags"]) for prediction in self._predictions(sentences)]

    def score(self, X: Any, y: Any) -> float:
        """The F1 of whole entities, 0 to 1."""
        return entity_scores([list(tags) for tags in read_column(y, TAGS)], self.predict(X))["f1"] / 100


def _example(text: str | tuple[str, str] | None) -> TextExample:
    assert text is not None
    return TextExample(text) if isinstance(text, str) else TextExample(*text)


def _without_missing(items: list[Any]) -> list[Any]:
    return [None if not isinstance(item, Sequence) and is_missing(item) else item for item in items]


def _sentence(words: Sequence[str], tags: Sequence[str] | None, row: int = 0) -> TaggedExample:
    if is_missing(words) and not isinstance(words, str):
        raise InputError(f"the sentence of row {row} is missing (None or NaN); fill it or drop the row")
    if isinstance(words, str):
        raise InputError("expected sentences as lists of words, got one str; split it into words")
    if tags is not None and len(tags) != len(words):
        raise InputError(f"expected a tag for each word, got {len(words)} words and {len(tags)} tags")
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return TaggedExample(" ".join(words), tuple(spans), None if tags is None else tuple(tags))
