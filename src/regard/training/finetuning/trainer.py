"""One seed of a fine-tuning run: what is to learn and how fast, the order of items, and the best weights kept.

How epochs go on is `regard.training.epoch_trainer`. Knows no files; prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.models import Elmo, Vit
from regard.nn import Attention, Stack
from regard.nn.block import FeedForward
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.task import Task, TaskInput
from regard.training import optimizer
from regard.training.adversary import Adversary
from regard.training.epoch_trainer import Epochs
from regard.training.finetuning.config import FineTuningConfig
from regard.training.finetuning.layer_schedule import (
    apply_layerwise_lr_decay,
    layer_starts,
    parameter_levels,
    unfreeze_layers,
)
from regard.training.finetuning.model_factory import TaskObjective
from regard.training.run_folder import Note
from regard.training.schedule import factor
from regard.training.stopping import Stop

__all__ = ["FineTuner", "Note", "SeedResult", "best_rate"]


@dataclass(frozen=True)
class SeedResult:
    """A seed's run: scores after each epoch, which of them was kept, what it took."""

    seed: int
    scores: dict[str, float]
    epoch: int
    seconds: float
    steps: int
    history: list[dict[str, float]] = field(default_factory=list)


def best_rate(width: int) -> float:
    """What suits a width: 1e-4 for 384, 5e-5 for 768, 3.75e-5 for 1,024."""
    return min(1e-4 * 384 / width, 3e-4)


class FineTuner(Epochs):
    """`folder` is for checkpoints; without one there are none. `judge` scores the model on data that it does not learn
    from; without one the last epoch is kept."""

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
        judge: Callable[[EncoderWithHead | ImageClassifier], dict[str, float]] | None = None,
        objective: Callable[[EncoderWithHead | ImageClassifier], nn.Module] | None = None,
        note: Note = lambda event, **values: None,
    ) -> None:
        self.items, self.config, self.judge = items, config, judge
        self.model = prepared(model, config).to(device)
        settings = config.training
        # A new layer alone learns well at a larger rate, and so do LSTMs.
        faster = settings.frozen or isinstance(model.encoder, Elmo)
        self.rate = rate = settings.learning_rate or best_rate(model.encoder.config.hidden_size) * (10 if faster else 1)
        optimizers = optimizer.build(
            self.model,
            name="adamw" if settings.frozen else settings.optimizer,
            rate=rate,
            betas=(0.9, 0.98),
            weight_decay=settings.weight_decay,
        )
        self.levels = parameter_levels(
            self.model, model.encoder.config.num_hidden_layers
        )  # of all that is to learn, now or later
        if settings.layerwise_lr_decay < 1:
            apply_layerwise_lr_decay(optimizers, self.levels, settings.layerwise_lr_decay)
        super().__init__(
            self.model,
            objective(self.model) if objective else TaskObjective(self.model, task),
            optimizers,
            training=settings,
            run=config.run,
            per_epoch=-(-len(items) // settings.batch_size),
            rate=lambda done: rate * factor(done, warmup=settings.warmup_ratio, shape="linear", floor=0.0),
            main=None if settings.select == "last" or judge is None else task.main_metric,
            seed=seed,
            device=device,
            folder=folder,
            note=partial(note, seed=seed),
        )
        self.adversary = self._adversary()

    def go(self, stop: Stop) -> SeedResult | None:
        """Train to the end, from the last checkpoint where there is one. None: someone asked to stop, all is saved."""
        self._tell_turns()
        done = self._go(stop)
        if done is None:
            return None
        self._take_best()
        scores = self.history[self.best_epoch - 1]
        return SeedResult(self.seed, scores, self.best_epoch, self.watch.used, done, self.history)

    def _tell_turns(self) -> None:
        """Where layers differ: which learns when, and how fast."""
        settings = self.config.training
        if settings.frozen or (settings.layerwise_lr_decay == 1 and not settings.unfreeze):
            return
        found = layer_starts(
            self.optimizers,
            self.levels,
            depth=self.model.encoder.config.num_hidden_layers,
            learning_rate=self.rate,
            unfreeze=settings.unfreeze,
            steps=self.steps,
        )
        self.note("layers", steps=self.steps, layers=[asdict(turn) for turn in found])

    def _adversary(self) -> Adversary | None:
        """None where there are no words, or where they do not learn."""
        size, encoder = self.config.training.adversarial_epsilon, self.model.encoder
        if not size or isinstance(encoder, Vit):
            return None
        words = encoder.get_parameter("embedding.weight" if isinstance(encoder, Elmo) else "embedding.tokens.weight")
        return Adversary(words, size) if words.requires_grad else None

    def _groups(self, epoch: int) -> list[list[int]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.items)).tolist()
        size = self.config.training.batch_size
        return [order[start : start + size] for start in range(0, len(order), size)]

    def _inputs(self, group: Sequence[int], number: int) -> dict[str, Any]:
        # Rows of one length go through attention together.
        chosen = sorted((self.items[place] for place in group), key=self.model.num_tokens)
        if unfreeze := self.config.training.unfreeze:
            unfreeze_layers(self.levels, number / self.steps, unfreeze)
        return {"inputs": self.model.collate(chosen).to(self.device), "items": chosen}

    def _scores(self, epoch: int) -> dict[str, float]:
        """Nothing where it would decide nothing."""
        if self.judge is None or (self.main is None and epoch < self.config.training.num_epochs):
            return {}
        self.judging(0, 0)
        return self.judge(self.model)

    def _keep(self, epoch: int) -> None:
        if self.main is not None and self.best_epoch == epoch:
            self.best = {name: tensor.clone() for name, tensor in self._learned().items()}

    def _learned(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters() if p in self.levels}

    def _take_best(self) -> None:
        """Where no epoch was found to be better than the others, the last stays."""
        with torch.no_grad():
            for name, parameter in self._learned().items() if self.best else ():
                parameter.copy_(self.best[name])


def prepared(model: EncoderWithHead | ImageClassifier, config: FineTuningConfig) -> EncoderWithHead | ImageClassifier:
    """The model with the settings' dropout, and with what is frozen kept from learning."""
    settings = config.training
    if settings.dropout >= 0:
        encoder: Any = model.encoder
        names = [name for name in ("dropout", "attention_dropout") if hasattr(encoder.config, name)]
        encoder.config = replace(encoder.config, **dict.fromkeys(names, settings.dropout))
        # Of the stack's end and inside the feed-forward networks, which none of these families has.
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
