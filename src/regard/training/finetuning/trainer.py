"""Fine-tunes one seed: the order of examples, the weights of the best epoch, and a schedule per layer (ULM-FiT).

For the schedule every parameter has a level, counted from the top: 0 for the task head, 1 for the last layer, up to
depth + 1 for the embeddings. Lower layers are more general, so they are trained later and with a lower learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.device import autocast_dtype
from regard.errors import InputError
from regard.events import Note
from regard.models.family import can
from regard.nn.attention import Attention
from regard.nn.block import FeedForward
from regard.nn.stack import Stack
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.task import LossFunction, Task, TaskInput
from regard.training.callbacks import Callbacks
from regard.training.events import Events, LayersScheduled
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.graphs import GraphedModel
from regard.training.finetuning.model_factory import TaskModel, TaskObjective
from regard.training.finetuning.report import SeedResult
from regard.training.layer_schedule import (
    apply_layerwise_lr_decay,
    layer_starts,
    parameter_levels,
    unfreeze_layers,
)
from regard.training.loop import AdversarialPerturbation, enable_gradient_checkpointing
from regard.training.old_trainer import EpochTrainer
from regard.training.optimizer import build_optimizers, default_learning_rate, head_learning_rate
from regard.training.parallel import ShardedModel, blank_copy, choose_parallel, replicate
from regard.training.settings import learning_rate_factor
from regard.training.shards import local_part
from regard.training.stopping import Stop
from regard.training.world import World


class FineTuner(EpochTrainer[SeedResult]):
    """`evaluate` scores the model on dev; without it the last epoch is kept. Checkpoints go to `folder`, if any.

    `loss` replaces the task's loss function, and the weights of classes in it.
    """

    model: TaskModel

    def __init__(
        self,
        model: TaskModel,
        task: Task[Any],
        items: Sequence[TaskInput],
        config: FineTuningConfig,
        *,
        seed: int,
        device: torch.device,
        folder: Path | None = None,
        evaluate: Callable[[TaskModel], dict[str, float]] | None = None,
        objective: Callable[[TaskModel, LossFunction], nn.Module] | None = None,
        loss: LossFunction | None = None,
        callbacks: Callbacks | None = None,
        world: World | None = None,
    ) -> None:
        self.items, self.config, self.evaluate, self.task = items, config, evaluate, task
        self.model = configure_model(model, config)
        world = world or World()
        settings, width = config.training, model.encoder.config.hidden_size
        has_matrices = not (settings.frozen or can(model.encoder, "layer-mix"))  # of Transformer layers, to be trained
        rate = default_learning_rate(width, settings.base_learning_rate) if has_matrices else head_learning_rate(width)
        self.peak_learning_rate = peak = settings.learning_rate or rate
        if settings.batch_size < world.size:
            raise InputError(
                f"training.batch_size is {settings.batch_size}, fewer examples than the {world.size} processes; use a "
                "larger one, or fewer processes"
            )
        optimizer = settings.optimizer if has_matrices else "adamw"
        self.class_weights = None
        if loss is None:
            self.class_weights = task.class_weights(items, settings.class_weights)
            loss = task.loss_function(self.class_weights)
        parallel, self._parallel_note = choose_parallel(
            config.run.parallel, self.model, optimizer=optimizer, world=world, device=device
        )
        blank = blank_copy(self.model) if parallel == "fsdp" else None
        if blank is None:
            self.model = self.model.to(device)
        if config.run.gradient_checkpointing:
            enable_gradient_checkpointing(self.model)
        module = objective(self.model, loss) if objective else TaskObjective(self.model, task, loss)
        sharded, dtype = None, autocast_dtype(config.run.precision, device)
        changes = config.run.gradient_checkpointing or settings.unfreeze  # of what a step computes
        if type(module) is TaskObjective and world.size == 1 and not changes:
            module.compute_logits = GraphedModel.of(self.model, device, dtype)
        if blank is not None:
            sharded = ShardedModel(self.model, module, blank, world=world, device=device, dtype=dtype)
        elif world.size > 1:
            module = replicate(module, find_unused_parameters=settings.unfreeze > 0)  # frozen layers get no gradient
        optimizers = build_optimizers(
            self.model,
            name=optimizer,
            learning_rate=peak,
            betas=(0.9, 0.98),
            weight_decay=settings.weight_decay,
        )
        self.levels = parameter_levels(
            self.model, model.encoder.config.num_hidden_layers
        )  # of everything that is ever trained
        if settings.layerwise_lr_decay < 1:
            apply_layerwise_lr_decay(optimizers, self.levels, settings.layerwise_lr_decay)
        steps_per_epoch = -(-len(items) // settings.batch_size)
        self.num_epochs = max(settings.num_epochs, -(-settings.min_steps // steps_per_epoch))
        # The epochs of few examples differ little, and their dev data is small: of equal scores the last one is kept.
        self.keeps_last_of_equal = self.num_epochs > settings.num_epochs
        super().__init__(
            self.model,
            module,
            optimizers,
            num_epochs=self.num_epochs,
            patience=settings.early_stopping_patience,
            max_grad_norm=settings.max_grad_norm,
            run=config.run,
            steps_per_epoch=steps_per_epoch,
            learning_rate=lambda done: (
                peak * learning_rate_factor(done, warmup=settings.warmup_ratio, scheduler="linear")
            ),
            main_score=None if settings.select == "last" or evaluate is None else task.main_metric,
            seed=seed,
            device=device,
            folder=folder,
            callbacks=callbacks,
            world=world,
            sharded=sharded,
        )
        self.perturbation = self._adversarial_perturbation()

    def run(self, stop: Stop) -> Events[SeedResult | None]:
        settings = self.config.training
        if self._parallel_note:
            yield Note(message=self._parallel_note)
        if not settings.frozen and (settings.layerwise_lr_decay < 1 or settings.unfreeze):
            yield self._layers_scheduled()
        yield from self._resume()
        if not (yield from self._train(stop)):
            return None
        with torch.no_grad():
            for name, parameter in self._trained_parameters().items() if self.best_weights else ():
                local_part(parameter).copy_(local_part(self.best_weights[name]))
        scores = self.history[self.best_epoch - 1]
        cost = self.stopwatch.elapsed, self.step
        return SeedResult(self.seed, scores, self.best_epoch, *cost, self.history, self.losses)

    def _layers_scheduled(self) -> LayersScheduled:
        starts = layer_starts(
            self.optimizers,
            self.levels,
            depth=self.model.encoder.config.num_hidden_layers,
            learning_rate=self.peak_learning_rate,
            unfreeze=self.config.training.unfreeze,
            steps=self.steps,
        )
        return LayersScheduled(steps=self.steps, layers=[asdict(start) for start in starts])

    def _adversarial_perturbation(self) -> AdversarialPerturbation | None:
        """None without token embeddings, or if they are not trained."""
        epsilon, encoder = self.config.training.adversarial_epsilon, self.model.encoder
        if not epsilon or can(encoder, "image"):
            return None
        words = encoder.get_parameter("embedding.weight" if can(encoder, "layer-mix") else "embedding.tokens.weight")
        return AdversarialPerturbation(words, epsilon) if words.requires_grad else None

    def _epoch_batches(self, epoch: int) -> list[list[int]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.items)).tolist()
        size = self.config.training.batch_size
        return [order[start : start + size] for start in range(0, len(order), size)]

    def _inputs(self, indices: Sequence[int], step: int) -> dict[str, Any]:
        # Rows of one length go through attention together.
        mine = indices[self.world.rank :: self.world.size] or indices[:1]
        chosen = sorted((self.items[index] for index in mine), key=self.model.num_tokens)
        if unfreeze := self.config.training.unfreeze:
            unfreeze_layers(self.levels, step / self.steps, unfreeze)
        inputs = {"inputs": self.model.collate(chosen).to(self.device), "items": chosen}
        return inputs | ({"share": self._share(indices)} if self.world.size > 1 else {})

    def _share(self, indices: Sequence[int]) -> float:
        """The weight of this process's mean loss, such that the mean over processes is the loss of the batch."""
        size = self.world.size
        parts = [[self.items[index] for index in indices[rank::size]] for rank in range(size)]
        weights = [self.task.target_weight(part, self.class_weights) if part else 0.0 for part in parts]
        return size * weights[self.world.rank] / (sum(weights) or 1.0)

    def _scores(self, epoch: int) -> Events[dict[str, float]]:
        """Empty if the scores would decide nothing."""
        if self.evaluate is None or (self.main_score is None and epoch < self.num_epochs):
            return {}
        yield from self._evaluation_progress(0, 0)
        model, scores = self.whole_model(), None
        with self.world.main_only() as is_main:
            if is_main:
                scores = self.evaluate(model)
        found: dict[str, float] = self.world.broadcast_json(scores)
        return found

    def _keep_weights(self, epoch: int) -> None:
        if self.main_score is not None and self.best_epoch == epoch:
            self.best_weights = {name: tensor.clone() for name, tensor in self._trained_parameters().items()}

    def _trained_parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters() if p in self.levels}


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
