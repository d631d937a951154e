"""The recipe of fine-tuning: one model for a task, trained on labeled examples, with dev scores after each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.readers import ExampleSet
from regard.device import autocast_dtype
from regard.models.family import can
from regard.nn.attention import Attention
from regard.nn.block import FeedForward
from regard.nn.stack import Stack
from regard.tasks.encoder_with_head import TaskModel, TaskObjective
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.task import LossFunction, Task, TaskInput
from regard.training.distributed.world import num_processes
from regard.training.layer_schedule import LayerSchedule, parameter_levels
from regard.training.loop import AdversarialPerturbation
from regard.training.optimizer import default_learning_rate, head_learning_rate
from regard.training.recipe import Evaluation, Recipe, Share, StepBatch, epochs_from
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.graphs import GraphedModel
from regard.training.recipes.finetuning.model_factory import ModelFactory


@dataclass(frozen=True)
class FineTuningInputs:
    """What a run trains, once the data is read: models from a factory, on `data`, with the settings that fit it."""

    factory: ModelFactory
    model: str  # what it is called
    data: dict[str, ExampleSet[Any]]
    config: FineTuningConfig
    baselines: tuple[str, ...] = ()  # models whose vectors a baseline reads
    refit: bool = False  # whether a baseline that is kept is fitted to dev too


class FineTuningRecipe(Recipe):
    """`new_model` makes the model of a seed, `evaluate` scores it on dev; without it the last epoch is kept.

    `loss` replaces the task's loss function, and the weights of classes in it.
    """

    model: TaskModel

    def __init__(
        self,
        task: Task[Any],
        items: Sequence[TaskInput],
        config: FineTuningConfig,
        *,
        new_model: Callable[[int], TaskModel],
        evaluate: Callable[[TaskModel], dict[str, float]] | None = None,
        objective: Callable[[TaskModel, LossFunction], nn.Module] | None = None,
        loss: LossFunction | None = None,
        dev_examples: int | None = None,
    ) -> None:
        self.task, self.items, self.config, self.new_model = task, items, config, new_model
        self.dev_examples = dev_examples
        self.score, self.make_objective = evaluate, objective
        self.evaluates, self.main_score, self.run = evaluate is not None, task.main_metric, config.run
        settings = config.training
        self.steps_per_epoch = -(-len(items) // settings.batch_size)
        num_epochs = max(settings.num_epochs, -(-settings.min_steps // self.steps_per_epoch))
        # The epochs of few examples differ little, and their dev data is small: of equal scores the last one is kept.
        self.keeps_last_of_equal = num_epochs > settings.num_epochs
        self.training = settings.model_copy(update={"num_epochs": num_epochs})
        self.class_weights = None
        if loss is None:
            self.class_weights = task.class_weights(items, settings.class_weights)
            loss = task.loss_function(self.class_weights)
        self.loss = loss

    def build_model(self, seed: int) -> nn.Module:
        settings, self.seed = self.config.training, seed
        self.model = configure_model(self.new_model(seed), self.config)
        encoder: Any = self.model.encoder
        has_matrices = not (settings.frozen or can(encoder, "layer-mix"))  # of Transformer layers, to be trained
        width = encoder.config.hidden_size
        rate = default_learning_rate(width, settings.base_learning_rate) if has_matrices else head_learning_rate(width)
        update: dict[str, object] = {"learning_rate": settings.learning_rate or rate}
        if not has_matrices:
            update["optimizer"] = "adamw"
        self.training = self.training.model_copy(update=update)
        return self.model

    def objective(self, model: nn.Module, device: torch.device) -> nn.Module:
        make, run = self.make_objective, self.run
        module = make(self.model, self.loss) if make else TaskObjective(self.model, self.task, self.loss)
        changes = run.gradient_checkpointing or self.config.training.unfreeze  # of what a step computes
        if type(module) is TaskObjective and run.compile == "auto" and num_processes() == 1 and not changes:
            module.compute_logits = GraphedModel.of(self.model, device, autocast_dtype(run.precision, device))
        return module

    def batches(self, step: int, position: Any, share: Share) -> Iterator[StepBatch]:
        assert self.steps_per_epoch is not None
        size = self.config.training.batch_size
        for epoch, first in epochs_from(step, self.steps_per_epoch):
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.items)).tolist()
            for start in range(first * size, len(order), size):
                parts = share.parts(order[start : start + size], self._targets)
                yield StepBatch([self._part(indices, weight) for indices, weight in parts])

    def _part(self, indices: Sequence[int], weight: float) -> dict[str, Any]:
        # Rows of one length go through attention together.
        chosen = sorted((self.items[index] for index in indices), key=self.model.num_tokens)
        return {"inputs": self.model.collate(chosen), "items": chosen, "share": weight}

    def _targets(self, indices: Sequence[int]) -> float:
        return self.task.target_weight([self.items[index] for index in indices], self.class_weights)

    def evaluate(self, model: nn.Module, *, final: bool) -> Evaluation:
        if self.score is None or (self.training.select == "last" and not final):  # it would decide nothing
            return {}
        yield 0, 0
        return self.score(model)  # type: ignore[arg-type]

    def layer_schedule(self, model: nn.Module) -> LayerSchedule | None:
        settings, depth = self.config.training, self.model.encoder.config.num_hidden_layers
        if settings.frozen or not (settings.layerwise_lr_decay < 1 or settings.unfreeze):
            return None
        levels = parameter_levels(model, depth)
        return LayerSchedule(levels, depth, decay=settings.layerwise_lr_decay, unfreeze=settings.unfreeze)

    def perturbation(self, model: nn.Module) -> AdversarialPerturbation | None:
        """None without token embeddings, or if they are not trained."""
        epsilon, encoder = self.config.training.adversarial_epsilon, self.model.encoder
        if not epsilon or can(encoder, "image"):
            return None
        words = encoder.get_parameter("embedding.weight" if can(encoder, "layer-mix") else "embedding.tokens.weight")
        return AdversarialPerturbation(words, epsilon) if words.requires_grad else None


def configure_model(model: TaskModel, config: FineTuningConfig) -> TaskModel:
    """Set the dropout of the model, and freeze its encoder, as the settings say."""
    settings = config.training
    if settings.dropout >= 0:
        encoder: Any = model.encoder
        names = [name for name in ("dropout", "attention_dropout") if hasattr(encoder.config, name)]
        encoder.config = replace(encoder.config, **dict.fromkeys(names, settings.dropout))
        # At the end of the stack and inside the feed-forward networks these families have no dropout.
        unused = {id(part.dropout) for part in model.modules() if isinstance(part, Stack | FeedForward)}
        for module in model.modules():
            if isinstance(module, Attention):
                module.dropout = settings.dropout
            elif isinstance(module, nn.Dropout) and id(module) not in unused:
                module.p = settings.dropout
    if settings.frozen:
        model.encoder.requires_grad_(False)
        if isinstance(model, ImageClassifier) and model.encoder.classifier is not None:
            model.encoder.classifier.requires_grad_(True)
    return model
