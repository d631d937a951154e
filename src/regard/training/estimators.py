"""`TextClassifier` and `Tagger`: fine-tuning as scikit-learn estimators, for pipelines, searches and cross-validation.

The work is done by `regard.training.finetuning`; nothing is written to disk, and dev data is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from regard.checkpoints import loading
from regard.data.examples import Example, TaggedExample, TextExample
from regard.device import choose_device
from regard.errors import InputError
from regard.known import DEFAULT_MODEL
from regard.parameters import EstimatorParameters
from regard.tasks.metrics import entity_scores
from regard.tasks.predict import predict
from regard.tasks.task import Task
from regard.tasks.text_classification import TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.model_factory import ModelFactory
from regard.training.finetuning.trainer import FineTuner
from regard.training.stopping import Stop

__all__ = ["Tagger", "TextClassifier"]


class _Tuning(EstimatorParameters):
    """What both have in common: the settings, and the training."""

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        num_epochs: int = 3,
        batch_size: int = 32,
        learning_rate: float = 0.0,
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
        values = {
            "num_epochs": self.num_epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "frozen": str(self.frozen).lower(),
            "select": "last",
        }
        config = FineTuningConfig.load(overrides=[f"training.{name}={value}" for name, value in values.items()])
        start = ModelFactory(task, *loading.load(self.model), length=self.max_length or 0)
        tuned = start.new_model(self.seed)
        items = task.preprocess(examples, start.rows)
        FineTuner(tuned, task, items, config, seed=self.seed, device=choose_device(self.device)).run(Stop())
        self.solved_ = start.fine_tuned_model(tuned.eval())

    def _predictions(self, examples: Sequence[Example]) -> list[dict[str, Any]]:
        if not self.__sklearn_is_fitted__():
            raise InputError(f"this {type(self).__name__} has learned nothing yet; call fit first")
        return predict(self.solved_, examples, device=choose_device(self.device)) if examples else []

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "solved_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True),
            input_tags=InputTags(two_d_array=False, one_d_array=True, string=True),
        )


class TextClassifier(_Tuning):
    """One class a text, or a pair given as a tuple. `classes_` are the labels, in the order of `predict_proba`."""

    def fit(self, X: Iterable[str | tuple[str, str]], y: Iterable[Any]) -> TextClassifier:
        texts, labels = _texts(X), list(y)
        if len(texts) != len(labels):
            raise InputError(f"expected a label for each text, got {len(texts)} texts and {len(labels)} labels")
        known = np.asarray(labels)
        self.classes_ = np.unique(known)
        examples = [TextExample(one.text, one.text_pair, str(label)) for one, label in zip(texts, known, strict=True)]
        self._fit(
            TextClassification(self._names(), multi_label=False)
            if len(self.classes_) > 1
            else TextClassification.from_examples(examples),
            examples,
        )
        return self

    def predict(self, X: Iterable[str | tuple[str, str]]) -> Any:
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(axis=1)]

    def predict_proba(self, X: Iterable[str | tuple[str, str]]) -> Any:
        """(n, classes)"""
        found = self._predictions(_texts(X))
        return np.array([list(one["probabilities"].values()) for one in found]).reshape(len(found), len(self.classes_))

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


class Tagger(_Tuning):
    """Tags of words: X is sentences as lists of words, y their tags, IOB2."""

    def fit(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> Tagger:
        examples = [_sentence(words, tags) for words, tags in zip(X, y, strict=True)]
        self._fit(TokenClassification.from_examples(examples), examples)
        return self

    def predict(self, X: Iterable[Sequence[str]]) -> list[list[str]]:
        return [list(one["tags"]) for one in self._predictions([_sentence(words, None) for words in X])]

    def score(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> float:
        """F1 of whole entities, 0 to 1."""
        return entity_scores([list(tags) for tags in y], self.predict(X))["f1"] / 100


def _texts(X: Iterable[str | tuple[str, str]]) -> list[TextExample]:
    if isinstance(X, str) or not isinstance(X, Iterable):
        raise InputError(f"expected a list of texts, got one {type(X).__name__}; put it in a list")
    found = []
    for place, text in enumerate(X):
        if isinstance(text, str):
            found.append(TextExample(str(text)))
        elif isinstance(text, Sequence) and len(text) == 2 and all(isinstance(part, str) for part in text):
            found.append(TextExample(*text))
        else:
            raise InputError(f"expected texts or pairs of them, got {type(text).__name__} at place {place}")
    return found


def _sentence(words: Sequence[str], tags: Sequence[str] | None) -> TaggedExample:
    if isinstance(words, str):
        raise InputError("expected sentences as lists of words, got one str; split it into words")
    if tags is not None and len(tags) != len(words):
        raise InputError(f"expected a tag for each word, got {len(words)} words and {len(tags)} tags")
    spans, at = [], 0
    for word in words:
        spans.append((at, at + len(word)))
        at += len(word) + 1
    return TaggedExample(" ".join(words), tuple(spans), None if tags is None else tuple(tags))
