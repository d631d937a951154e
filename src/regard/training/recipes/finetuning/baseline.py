"""The baseline of every fine-tuning on texts and pairs: logistic or ridge regression on vectors of an embedding model.

Where rows are few, the fine-tuning and the baseline are compared by cross-validation, otherwise by their scores on dev.
The better one is kept. Both are also compared with the majority class (the mean, for numbers).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints import loading
from regard.checkpoints.loaded_model import require_tokenizer
from regard.checkpoints.reading import stated_language
from regard.data.examples import Example, TextExample, split_folds
from regard.data.readers import ExampleSet
from regard.errors import InputError
from regard.events import Event, Note, Progress, map_events
from regard.files.disk import atomic_write
from regard.files.json_files import json_bytes, read_checked_json, with_checksum
from regard.inference.embedding.sentence_transformers import read_sentence_settings
from regard.known import DEFAULT_EMBEDDING_MODEL, DEFAULT_MODEL
from regard.models.family import can
from regard.nn.pooling import POOLINGS
from regard.tasks.fine_tuned_model import FineTunedModel, predict
from regard.tasks.inputs import VectorSettings
from regard.tasks.task import LossFunction, Prediction, Task
from regard.training.doctor.data import spaced
from regard.training.events import Events, Interrupted, StepFinished
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.linear_head import FrozenTrainer, VectorModel, predict_linear
from regard.training.recipes.finetuning.model_factory import ModelFactory
from regard.training.recipes.finetuning.recipe import FineTuningInputs, FineTuningRecipe
from regard.training.recipes.finetuning.report import BaselineResult, Scores
from regard.training.trainer import Trainer

FEW_ROWS = 1000  # labeled rows up to which models are compared by cross-validation, and start from regard-embed
FEW_DEV = 100  # dev examples from which on their scores decide
MAX_ROWS = 10_000  # to which a baseline is fitted
TEXT_TASKS = ("classify", "pair", "regress")
FOLDS = 3
CHANCE = 1.64  # standard errors of the baseline's accuracy that fine-tuning has to lead by in a cross-validation
DECISIVE = 10.0  # points by which a fold settles the comparison
FINE_TUNING, BASELINE = "fine-tuning", "baseline"


def applies_to(task: Task[Any], examples: Sequence[Example]) -> bool:
    """Whether the task predicts from whole texts, and all examples have the same number of them."""
    if task.name not in TEXT_TASKS or task.reads_images:
        return False
    return len({isinstance(one, TextExample) and one.text_pair is not None for one in examples}) == 1


def num_texts(examples: Sequence[Any]) -> int:
    return 1 if examples[0].text_pair is None else 2


def vector_settings(folder: Path, texts: int) -> VectorSettings:
    """The pooling that the folder of an embedding model states, without its modules; the mean for other models."""
    try:
        stated = read_sentence_settings(folder)
    except InputError:  # modules that are not supported; the mean of the tokens is a vector too
        return VectorSettings(num_texts=texts)
    pooling = stated.pooling if stated.pooling in POOLINGS else "mean"  # a head is as wide as one of them
    return VectorSettings(pooling, bool(stated.normalize), texts)


@cache
def _default_encoder() -> tuple[Any, Any]:
    encoder, tokenizer = loading.load(DEFAULT_EMBEDDING_MODEL)
    return encoder, require_tokenizer(encoder, tokenizer)


def vector_model(model: str, task: Task[Any], examples: Sequence[Example], *, length: int) -> VectorModel:
    """The vectors of a model by its name."""
    folder = loading.find_folder(model)
    if model == DEFAULT_EMBEDDING_MODEL:
        encoder, tokenizer = _default_encoder()
    else:
        encoder, found = loading.load(folder)
        tokenizer = require_tokenizer(encoder, found)
    vectors = VectorModel(task, encoder, tokenizer, vector_settings(folder, num_texts(examples)), length=length)
    vectors.language = stated_language(folder)
    return vectors


class Comparison:
    """Compares fine-tuning with a baseline: linear heads on the vectors of `inputs.baselines`.

    `folder` is that of finished folds.
    """

    def __init__(self, inputs: FineTuningInputs, folder: Path, device: torch.device) -> None:
        self.inputs, self.folder, self.device = inputs, folder, device
        self.task, self.config = inputs.factory.task, inputs.config

    def run(self, scores: Scores, *, processes: int) -> Events[tuple[BaselineResult, FineTunedModel | None]]:
        """Compare, by cross-validation where rows are few; returns the result and, if it is better, the baseline.

        `scores` are those of the fine-tuning on dev. With `inputs.refit`, a baseline that is kept is fitted to train
        and dev; its scores on dev are of a fit to train alone.
        """
        task, (train, dev) = self.task, (self.inputs.data[part].examples for part in ("train", "dev"))
        folded = processes == 1 and len(dev) < FEW_DEV and len(train) + len(dev) <= FEW_ROWS
        if len(train) > MAX_ROWS:
            yield Note(message=f"baseline: fitted to a sample of {MAX_ROWS:,} of {len(train):,} examples")
        train = spaced(train, MAX_ROWS)
        everything = [*train, *dev]
        parts = [(list(range(len(train))), list(range(len(train), len(everything))))]
        if folded:
            folds = [set(fold) for fold in split_folds(everything, FOLDS)]
            indices = range(len(everything))
            parts = [([i for i in indices if i not in fold], sorted(fold)) for fold in folds]

        def truth_of(some: Sequence[tuple[list[int], list[int]]]) -> list[Any]:
            return [everything[index] for _, held in some for index in held]

        truth, metric = truth_of(parts), task.main_metric
        candidates: dict[str, tuple[VectorModel, Any, Any]] = {}
        found: dict[str, Scores] = {}
        predicted: dict[str, list[Prediction]] = {}
        for name in self.inputs.baselines:
            model = vector_model(name, task, everything, length=self.inputs.factory.length)
            inputs = model.inputs(everything)
            candidates[name] = model, inputs, model.features(inputs, self.device)
            yield Progress(stage=f"embedding with {name}", done=len(inputs), total=len(inputs))
            predicted[name] = self._predict(candidates[name], everything, parts)
            found[name] = task.compute_metrics(truth, predicted[name])
        first = next(iter(candidates.values()))
        zeros = torch.zeros(len(everything), 1, dtype=torch.double)
        constant = self._predict((first[0], first[1], zeros), everything, parts)
        majority = task.compute_metrics(truth, constant)
        best = max(found, key=lambda name: self._order(found[name], majority))
        if folded:
            yield Note(
                message=f"comparing with the baseline by cross-validation: up to {FOLDS} folds, each trained as the "
                "model was (--no-baseline leaves it out)"
            )
            predictions: list[Prediction] = []
            for number, (rest, held) in enumerate(parts):
                path, part = self.folder / f"fold-{number}.json", None
                with suppress(InputError):  # a damaged file is computed again
                    part = read_checked_json(path)["predictions"] if path.is_file() else None
                if not isinstance(part, list):
                    stage = f"cross-validation, fold {number + 1} of {len(parts)}"
                    events = self._predict_fold([everything[i] for i in rest], [everything[i] for i in held])
                    part = yield from map_events(events, partial(_as_progress, stage=stage))
                    atomic_write(path, json_bytes(with_checksum({"predictions": part})))
                predictions += part
                truth = truth_of(parts[: number + 1])
                scores = task.compute_metrics(truth, predictions)
                found[best] = task.compute_metrics(truth, predicted[best][: len(truth)])
                majority = task.compute_metrics(truth, constant[: len(truth)])
                if found[best][metric] - scores[metric] > DECISIVE:  # more folds would not turn it around
                    parts = parts[: number + 1]
                    break
        wins = self._order(found[best], majority) > self._order(scores, majority)
        if folded and task.main_metric == "accuracy":
            # A lead of a row or two is chance: fine-tuning has to earn its size.
            share = found[best][metric] / 100
            error = 100 * math.sqrt(share * (1 - share) / len(truth))
            wins = wins or (majority[metric] < found[best][metric] >= scores[metric] - CHANCE * error)
        model, inputs, features = candidates[best]
        end = len(train)
        fitted = model.fit(features[:end], inputs[:end], train, self._loss(inputs[:end]))
        on_dev = task.compute_metrics(dev, predict_linear(task, fitted, features[end:], inputs[end:], dev))
        result = BaselineResult(
            model=best,
            kept="baseline" if wins else "fine-tuning",
            folds=len(parts) if folded else 0,
            metric=metric,
            scores={BASELINE: found[best], FINE_TUNING: scores, "majority": majority},
            dev=on_dev,
            others={name: value for name, value in found.items() if name != best},
            strength=fitted.strength,
        )
        yield Note(message=result.text())
        if not wins:
            return result, None
        if self.inputs.refit:
            fitted = model.fit(features, inputs, everything, self._loss(inputs))
        return result, model.with_head(fitted, precision=self.config.run.precision)

    def _predict(self, candidate: tuple[VectorModel, Any, Any], examples: Any, parts: Any) -> list[Prediction]:
        """The predictions of linear heads that are fitted to the first indices of each part, for the second ones."""
        model, inputs, features = candidate
        predictions: list[Prediction] = []
        for rest, held in parts:
            some = [inputs[index] for index in rest]
            fitted = model.fit(features[rest], some, [examples[index] for index in rest], self._loss(some))
            chosen = [inputs[index] for index in held], [examples[index] for index in held]
            predictions += predict_linear(self.task, fitted, features[held], *chosen)
        return predictions

    def _predict_fold(self, train: Sequence[Any], held: Sequence[Any]) -> Events[list[Prediction]]:
        factory, config = self.inputs.factory, self.config
        trainer = new_trainer(factory, train, config, seed=config.run.seed, device=self.device)
        yield from trainer.train()
        fine_tuned = factory.fine_tuned_model(trainer.whole_model().eval(), precision=config.run.precision)
        return predict(fine_tuned, held, device=self.device)

    def _loss(self, inputs: Any) -> LossFunction:
        return self.task.loss_function(self.task.class_weights(inputs, self.config.training.class_weights))

    def _order(self, scores: Scores, majority: Scores) -> tuple[float, float]:
        """The main score; of models that do not beat the majority class, the one with the better correlation."""
        metric = self.task.main_metric
        return max(scores[metric], majority[metric]), scores.get("mcc", scores[metric])


def has_few_rows(task: type[Task[Any]], data: Mapping[str, ExampleSet[Any]]) -> bool:
    return task.name in TEXT_TASKS and len(data["train"].examples) + len(data["dev"].examples) <= FEW_ROWS


def start_model(task: type[Task[Any]], data: Mapping[str, ExampleSet[Any]], config: FineTuningConfig) -> str:
    """The model to start from if none is given: regard-embed for vectors, few texts and numbers, else regard-bert."""
    if task.name not in TEXT_TASKS:
        return DEFAULT_MODEL
    few = has_few_rows(task, data)
    return DEFAULT_EMBEDDING_MODEL if few or config.training.frozen or task.name == "regress" else DEFAULT_MODEL


def frozen_trainer(
    factory: ModelFactory, examples: Sequence[Any], config: FineTuningConfig, **options: Any
) -> FrozenTrainer | None:
    """The trainer of the head of a frozen encoder, with `options` of `FrozenTrainer`; None if it is trained in steps.

    An encoder that learns the weights of its layers (ELMo) is.
    """
    if not config.training.frozen or not applies_to(factory.task, examples) or can(factory.encoder, "layer-mix"):
        return None
    assert factory.tokenizer is not None
    texts = num_texts(examples)
    settings = vector_settings(factory.folder, texts) if factory.folder else VectorSettings(num_texts=texts)
    encoder = copy.deepcopy(factory.encoder)
    vectors = VectorModel(factory.task, encoder, factory.tokenizer, settings, length=factory.length)
    vectors.language = factory.language
    return FrozenTrainer(vectors, examples, config.training.class_weights, **options)


def new_trainer(
    factory: ModelFactory, examples: Sequence[Any], config: FineTuningConfig, *, seed: int, device: torch.device
) -> Trainer | FrozenTrainer:
    """A trainer without dev examples and checkpoints."""
    if (frozen := frozen_trainer(factory, examples, config, device=device)) is not None:
        return frozen
    items = factory.task.preprocess(examples, factory.rows)
    recipe = FineTuningRecipe(factory.task, items, config, new_model=factory.new_model)
    return Trainer(recipe, seed=seed, device=device)


def _as_progress(event: Event, stage: str) -> Event:
    """Steps of a fold as progress: they are not steps of the run."""
    if isinstance(event, Interrupted):
        return Note(message=f"stopped in {stage}, which starts again with --resume; what was done before is saved")
    if not isinstance(event, StepFinished):
        return event
    return Progress(stage=stage, done=event.step, total=event.steps, unit="steps")
