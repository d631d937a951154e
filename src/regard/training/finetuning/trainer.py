"""Fine-tunes one seed: learning rates per layer, the order of examples, and the weights of the best epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.models.family import can
from regard.nn import Attention, Stack
from regard.nn.block import FeedForward
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.task import Task, TaskInput
from regard.training.events import Events, LayersScheduled
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.layer_schedule import (
    apply_layerwise_lr_decay,
    layer_starts,
    parameter_levels,
    unfreeze_layers,
)
from regard.training.finetuning.model_factory import TaskObjective
from regard.training.finetuning.report import SeedResult
from regard.training.loop import AdversarialPerturbation
from regard.training.optimizer import build_optimizers
from regard.training.schedule import learning_rate_factor
from regard.training.stopping import Stop
from regard.training.trainer import EpochTrainer


def default_learning_rate(width: int) -> float:
    """The peak learning rate for a hidden size: 1e-4 for 384, 5e-5 for 768, 3.75e-5 for 1,024."""
    return min(1e-4 * 384 / width, 3e-4)


class FineTuner(EpochTrainer):
    """`evaluate` scores the model on dev; without it the last epoch is kept. Checkpoints go to `folder`, if any."""

    model: EncoderWithHead | ImageClassifier

    def __init__(
        self,
        model: EncoderWithHead | ImageClassifier,
        task: Task[Any],
        items: Sequence[TaskInput],
        config: FineTuningConfig,
        *,
        seed: int,
        device: torch.device,
        folder: Path | None = None,
        evaluate: Callable[[EncoderWithHead | ImageClassifier], dict[str, float]] | None = None,
        objective: Callable[[EncoderWithHead | ImageClassifier], nn.Module] | None = None,
    ) -> None:
        self.items, self.config, self.evaluate = items, config, evaluate
        self.model = configure_model(model, config).to(device)
        settings = config.training
        # A task head alone learns well at a larger rate, and so do LSTMs.
        larger = settings.frozen or can(model.encoder, "layer-mix")
        peak = settings.learning_rate or default_learning_rate(model.encoder.config.hidden_size) * (10 if larger else 1)
        self.peak_learning_rate = peak
        optimizers = build_optimizers(
            self.model,
            name="adamw" if settings.frozen else settings.optimizer,
            learning_rate=peak,
            betas=(0.9, 0.98),
            weight_decay=settings.weight_decay,
        )
        self.levels = parameter_levels(
            self.model, model.encoder.config.num_hidden_layers
        )  # of everything that is ever trained
        if settings.layerwise_lr_decay < 1:
            apply_layerwise_lr_decay(optimizers, self.levels, settings.layerwise_lr_decay)
        super().__init__(
            self.model,
            objective(self.model) if objective else TaskObjective(self.model, task),
            optimizers,
            training=settings,
            run=config.run,
            steps_per_epoch=-(-len(items) // settings.batch_size),
            learning_rate=lambda done: (
                peak * learning_rate_factor(done, warmup=settings.warmup_ratio, scheduler="linear")
            ),
            main_score=None if settings.select == "last" or evaluate is None else task.main_metric,
            seed=seed,
            device=device,
            folder=folder,
        )
        self.perturbation = self._adversarial_perturbation()

    def run(self, stop: Stop) -> Events[SeedResult | None]:
        """Train to the end, from the newest checkpoint if there is one. None: interrupted, with everything saved."""
        settings = self.config.training
        if not settings.frozen and (settings.layerwise_lr_decay < 1 or settings.unfreeze):
            yield self._layers_scheduled()
        yield from self._resume()
        if not (yield from self._train(stop)):
            return None
        with torch.no_grad():
            for name, parameter in self._trained_parameters().items() if self.best_weights else ():
                parameter.copy_(self.best_weights[name])
        scores = self.history[self.best_epoch - 1]
        return SeedResult(self.seed, scores, self.best_epoch, self.stopwatch.elapsed, self.step, self.history)

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
        chosen = sorted((self.items[index] for index in indices), key=self.model.num_tokens)
        if unfreeze := self.config.training.unfreeze:
            unfreeze_layers(self.levels, step / self.steps, unfreeze)
        return {"inputs": self.model.collate(chosen).to(self.device), "items": chosen}

    def _scores(self, epoch: int) -> Events[dict[str, float]]:
        """Empty if the scores would decide nothing."""
        if self.evaluate is None or (self.main_score is None and epoch < self.config.training.num_epochs):
            return {}
        yield from self._evaluation_progress(0, 0)
        return self.evaluate(self.model)

    def _keep_weights(self, epoch: int) -> None:
        if self.main_score is not None and self.best_epoch == epoch:
            self.best_weights = {name: tensor.clone() for name, tensor in self._trained_parameters().items()}

    def _trained_parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters() if p in self.levels}


def configure_model(
    model: EncoderWithHead | ImageClassifier, config: FineTuningConfig
) -> EncoderWithHead | ImageClassifier:
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
