"""`TextClassifier` and `Tagger`: scikit-learn estimators that fine-tune a model.

They work in pipelines, parameter searches and cross-validation. Nothing is written to disk, and no validation data is
set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from regard.checkpoints import loading
from regard.data.examples import Example, TaggedExample, TextExample
from regard.device import choose_device
from regard.errors import InputError
from regard.events import drain
from regard.known import DEFAULT_MODEL
from regard.parameters import EstimatorParameters
from regard.tasks.fine_tuned_model import predict
from regard.tasks.metrics import entity_scores
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.model_factory import ModelFactory
from regard.training.finetuning.trainer import FineTuner
from regard.training.stopping import Stop


class _FineTunedEstimator(EstimatorParameters):
    """The common parameters and the training of both estimators. Settings that are None are those of `regard train`."""

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        num_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        frozen: bool = False,
        max_length: int | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.num_epochs = num_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.frozen = frozen
        self.max_length = max_length
        self.seed = seed
        self.device = device

    def _fit(self, task: Task[Any], examples: Sequence[Example]) -> None:
        values = {"num_epochs": self.num_epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
        given = [f"training.{name}={value}" for name, value in values.items() if value is not None]
        overrides = [*given, f"training.frozen={str(self.frozen).lower()}", "training.select=last"]
        config = FineTuningConfig.load(overrides=overrides, defaults={"training": task.training_defaults})
        factory = ModelFactory(task, *loading.load(self.model), length=self.max_length or 0)
        model = factory.new_model(self.seed)
        items = task.preprocess(examples, factory.rows)
        drain(FineTuner(model, task, items, config, seed=self.seed, device=choose_device(self.device)).run(Stop()))
        self.fine_tuned_ = factory.fine_tuned_model(model.eval())

    def _predictions(self, examples: Sequence[Example]) -> list[dict[str, Any]]:
        if not self.__sklearn_is_fitted__():
            raise InputError(f"this {type(self).__name__} is not fitted; call fit first")
        return predict(self.fine_tuned_, examples, device=choose_device(self.device)) if examples else []

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
    """Classifies texts, or pairs of texts as tuples. `classes_` are the labels in the order of `predict_proba`."""

    def fit(self, X: Iterable[str | tuple[str, str]], y: Iterable[Any]) -> TextClassifier:
        texts, labels = _texts(X), list(y)
        if len(texts) != len(labels):
            raise InputError(f"expected a label for each text, got {len(texts)} texts and {len(labels)} labels")
        targets = np.asarray(labels)
        self.classes_ = np.unique(targets)
        examples = [replace(text, label=str(label)) for text, label in zip(texts, targets, strict=True)]
        kind = PairClassification if any(text.text_pair is not None for text in texts) else TextClassification
        self._fit(kind(self._names()) if len(self.classes_) > 1 else kind.from_examples(examples), examples)
        return self

    def predict(self, X: Iterable[str | tuple[str, str]]) -> Any:
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Iterable[str | tuple[str, str]]) -> Any:
        """The probabilities of the classes, (n, classes)."""
        predictions = self._predictions(_texts(X))
        rows = [list(prediction["probabilities"].values()) for prediction in predictions]
        return np.array(rows).reshape(len(rows), len(self.classes_))

    def score(self, X: Iterable[str | tuple[str, str]], y: Iterable[Any]) -> float:
        """The accuracy."""
        return float(np.mean(self.predict(X) == np.asarray(list(y))))

    def _names(self) -> list[str]:
        return [str(label) for label in self.classes_]

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags


class Tagger(_FineTunedEstimator):
    """Tags words: X holds sentences as lists of words, y their IOB2 tags."""

    def fit(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> Tagger:
        examples = [_sentence(words, tags) for words, tags in zip(X, y, strict=True)]
        self._fit(TokenClassification.from_examples(examples), examples)
        return self

    def predict(self, X: Iterable[Sequence[str]]) -> list[list[str]]:
        return [list(prediction["tags"]) for prediction in self._predictions([_sentence(words, None) for words in X])]

    def score(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> float:
        """The F1 of whole entities, 0 to 1."""
        return entity_scores([list(tags) for tags in y], self.predict(X))["f1"] / 100


def _texts(X: Iterable[str | tuple[str, str]]) -> list[TextExample]:
    if isinstance(X, str) or not isinstance(X, Iterable):
        raise InputError(f"expected a list of texts, got one {type(X).__name__}; put it in a list")
    examples = []
    for index, text in enumerate(X):
        if isinstance(text, str):
            examples.append(TextExample(str(text)))
        elif isinstance(text, Sequence) and len(text) == 2 and all(isinstance(part, str) for part in text):
            examples.append(TextExample(*text))
        else:
            raise InputError(f"expected texts or pairs of them, got {type(text).__name__} at index {index}")
    return examples


def _sentence(words: Sequence[str], tags: Sequence[str] | None) -> TaggedExample:
    if isinstance(words, str):
        raise InputError("expected sentences as lists of words, got one str; split it into words")
    if tags is not None and len(tags) != len(words):
        raise InputError(f"expected a tag for each word, got {len(words)} words and {len(tags)} tags")
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return TaggedExample(" ".join(words), tuple(spans), None if tags is None else tuple(tags))
