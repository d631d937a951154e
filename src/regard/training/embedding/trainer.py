"""Trains a sentence-embedding model on packed batches, evaluates it on dev, and keeps the best epoch."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.prefetch import prefetch
from regard.device import autocast_dtype, synchronize
from regard.errors import InputError
from regard.events import Progress
from regard.nn.masks import MAX_SEQUENCES, Packed
from regard.nn.training import evaluation_mode
from regard.training.embedding.config import EmbeddingConfig, EmbeddingObjectiveSection
from regard.training.embedding.data import EmbeddingBatch, EmbeddingDataset, TokenizedTexts, pack
from regard.training.embedding.losses import (
    cosent_loss,
    distillation_losses,
    matryoshka_loss,
    ranking_loss,
    similarity_loss,
)
from regard.training.events import Evaluated, Events
from regard.training.finetuning.trainer import default_learning_rate
from regard.training.loop import StepProgress, TimeProgress, derive_seed, train
from regard.training.old_trainer import EpochTrainer
from regard.training.optimizer import build_optimizers
from regard.training.settings import learning_rate_factor, parse_budget
from regard.training.stopping import Stop

ENDLESS = 1 << 40  # steps of a run with a time budget
TOKENS = defaultdict(lambda: 1 << 18, cpu=4096)  # per batch of a teacher, by device
PADDING = 512  # compiled batches are padded to a multiple of this number of tokens
COMPILING_STEPS = 3  # a CUDA graph is recorded in the second step and used in the third
SAMPLED_EPOCHS = 32  # whose largest batch is the size of compiled batches


def pool(hidden: Tensor, owner: Tensor, lengths: Tensor, pooling: str = "mean") -> Tensor:
    """One vector per text, (texts, W) in float32, from the tokens of a packed batch; see `pack`."""
    texts = len(lengths)
    total = torch.zeros(texts + 1, hidden.shape[-1], device=hidden.device)  # the last row collects the padding
    if pooling == "max":
        return total.index_reduce(0, owner, hidden.float(), "amax", include_self=False)[:texts]
    if pooling == "cls":
        first = torch.cat([owner.new_ones(1, dtype=torch.bool), owner.diff() != 0])
        return total.index_copy(0, owner[first], hidden[first].float())[:texts]
    return total.index_add(0, owner, hidden.float())[:texts] / lengths[:, None]


def run_packed(model: nn.Module, ids: Tensor, starts: Tensor, positions: Tensor, *, max_length: int) -> Tensor:
    """The last hidden state of each token of a packed batch, (N, W)."""
    # On a CPU the lengths group texts of equal length; a GPU kernel reads the starts.
    sizes = None if ids.is_cuda else tuple(size for size in starts.diff().tolist() if size)
    hidden: Tensor = model(ids, Packed(sizes, starts, positions, max_length))
    return hidden


def teacher_vectors(
    model: nn.Module, texts: TokenizedTexts, *, pooling: str, max_length: int, device: torch.device
) -> Events[NDArray[np.float16]]:
    """The normalized vectors of a teacher, one per text; bf16 on a GPU."""
    model = model.to(device)
    size: int = model.config.hidden_size  # type: ignore[union-attr, assignment]
    vectors = np.empty((len(texts), size), dtype=np.float16)
    order = np.argsort(texts.lengths, kind="stable")
    # A text counts as a few tokens at least, so that no batch has more texts than the kernels take.
    least = -(-TOKENS[device.type] // MAX_SEQUENCES)
    groups = np.cumsum(np.maximum(texts.lengths[order], least)) // TOKENS[device.type]
    autocast = autocast_dtype("auto", device)
    done = 0
    for rows in np.split(order, np.flatnonzero(np.diff(groups)) + 1):
        inputs = pack([texts], rows, max_length=max_length).to(device).inputs
        owner, lengths = inputs.pop("owner"), inputs.pop("lengths")
        with evaluation_mode(model), torch.autocast(device.type, autocast, enabled=autocast is not None):
            hidden = run_packed(model, **inputs, max_length=max_length)
            found = F.normalize(pool(hidden, owner, lengths, pooling), dim=-1)
        vectors[rows] = found.half().cpu().numpy()
        done += len(rows)
        yield Progress(stage="embedding with the teacher", done=done, total=len(texts))
    return vectors


class EmbeddingObjective(nn.Module):
    """The loss of a batch of pairs, triplets or scored pairs, or of texts with a teacher's vectors.

    With Matryoshka sizes the loss is summed over truncated vectors. A teacher's vectors are not trained to be
    truncated, so there the smaller sizes learn the similarities of the batch only.
    """

    def __init__(self, model: nn.Module, settings: EmbeddingObjectiveSection, *, columns: int, max_length: int) -> None:
        super().__init__()
        self.model, self.settings, self.columns, self.max_length = model, settings, columns, max_length

    def forward(
        self,
        ids: Tensor,
        starts: Tensor,
        positions: Tensor,
        owner: Tensor,
        lengths: Tensor,
        scores: Tensor | None = None,
        targets: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> dict[str, Tensor]:
        hidden = run_packed(self.model, ids, starts, positions, max_length=self.max_length)
        with torch.autocast(ids.device.type, enabled=False):  # similarities are divided by a small temperature
            vectors = pool(hidden, owner, lengths)
            if targets is not None:
                return self._distillation(vectors, targets.float())
            columns = vectors.chunk(self.columns)
            sizes = self.settings.matryoshka or (vectors.shape[-1],)
            temperature = self.settings.temperature
            if scores is not None:

                def ordered(columns: Sequence[Tensor]) -> Tensor:
                    return cosent_loss(columns[0], columns[1], scores, temperature=temperature)

                return {"loss": matryoshka_loss(ordered, columns, sizes)}
            same = None if keys is None else same_texts(keys)

            def ranked(columns: Sequence[Tensor]) -> Tensor:
                anchors, *candidates = columns
                return ranking_loss(anchors, torch.cat(candidates), temperature=temperature, not_negative=same)

            return {"loss": matryoshka_loss(ranked, columns, sizes)}

    def _distillation(self, vectors: Tensor, targets: Tensor) -> dict[str, Tensor]:
        settings = self.settings
        weights = {
            "cosine": settings.cosine_weight,
            "contrastive": settings.contrastive_weight,
            "similarity": settings.similarity_weight,
        }
        temperature = settings.teacher_temperature
        if vectors.shape == targets.shape:
            losses = distillation_losses(
                vectors, targets, temperature=settings.temperature, teacher_temperature=temperature
            )
        else:  # only the similarities of texts can be compared
            losses = {"similarity": similarity_loss(vectors, targets, temperature=temperature)}
        losses["loss"] = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
        for size in settings.matryoshka:
            if size < vectors.shape[-1]:
                losses[f"similarity_{size}"] = similarity_loss(vectors[:, :size], targets, temperature=temperature)
                losses["loss"] = losses["loss"] + settings.similarity_weight * losses[f"similarity_{size}"]
        return losses


def same_texts(keys: Tensor) -> Tensor:
    """Candidates that are no negatives of an anchor, (B, C): equal to its positive, or a positive of an equal anchor.

    `keys` (columns, B) are numbers of texts.
    """
    anchors, positives, candidates = keys[0], keys[1], keys[1:].flatten()
    same = positives[:, None] == candidates[None, :]
    of_equal_anchors = anchors[:, None] == anchors[None, :]
    same[:, : len(anchors)] |= of_equal_anchors
    own = torch.eye(len(anchors), len(candidates), dtype=torch.bool, device=keys.device)
    return same & ~own


@dataclass(frozen=True)
class EmbeddingOutcome:
    """Scores on dev of the weights that are kept, and the cost of the run."""

    scores: dict[str, float]
    epoch: float  # of the weights that are kept; 0: those before training
    steps: int
    tokens: int
    seconds: float
    history: list[dict[str, float]] = field(default_factory=list)  # scores of each epoch
    start: dict[str, float] = field(default_factory=dict)  # scores before training


class EmbeddingTrainer(EpochTrainer[EmbeddingOutcome]):
    """`evaluate` scores the model on dev by the scores' names; the first is the main one. Without it the last step is
    kept. Rows that do not fill a batch at the end of an epoch wait for the next one."""

    def __init__(
        self,
        model: nn.Module,
        dataset: EmbeddingDataset,
        config: EmbeddingConfig,
        *,
        max_length: int,
        device: torch.device,
        folder: Path | None = None,
        evaluate: Callable[[], dict[str, float]] | None = None,
        main_score: str | None = None,
    ) -> None:
        self.dataset, self.config, self.evaluate, self.max_length = dataset, config, evaluate, max_length
        settings = config.training
        self.batch_size = min(settings.batch_size, len(dataset))
        if self.batch_size < 2:
            raise InputError("one row has no negatives: expected at least 2 different rows to train on")
        if self.batch_size * len(dataset.columns) > MAX_SEQUENCES:
            raise InputError(
                f"training.batch_size is {settings.batch_size:,}: {len(dataset.columns)} texts per row are more than "
                f"the {MAX_SEQUENCES:,} texts that a batch can hold"
            )
        model = model.to(device)
        width: int = model.config.hidden_size  # type: ignore[union-attr, assignment]
        peak = settings.learning_rate or default_learning_rate(width)
        self.budget = parse_budget(settings.budget) if settings.budget else None
        steps_per_epoch = len(dataset) // self.batch_size
        objective = EmbeddingObjective(model, config.objective, columns=len(dataset.columns), max_length=max_length)
        super().__init__(
            model,
            objective,
            build_optimizers(
                model,
                name=settings.optimizer,
                learning_rate=peak,
                betas=(0.9, 0.98),
                weight_decay=settings.weight_decay,
            ),
            num_epochs=settings.num_epochs,
            patience=0,
            steps_per_epoch=steps_per_epoch,
            learning_rate=lambda done: (
                peak * learning_rate_factor(done, warmup=settings.warmup_ratio, scheduler=settings.lr_scheduler_type)
            ),
            max_grad_norm=settings.max_grad_norm,
            main_score=main_score if settings.select == "best" and evaluate is not None else None,
            run=config.run,
            seed=config.run.seed,
            device=device,
            folder=folder,
        )
        if self.budget is not None or settings.max_steps:
            self.steps = settings.max_steps or ENDLESS
        self.saves_after_evaluation = evaluate is not None
        self.capacity = 0
        if config.run.compile == "on" or (config.run.compile == "auto" and device.type == "cuda"):
            self.capacity = self._largest_batch()
            # CUDA graphs save hundreds of kernel launches per step.
            objective.compile(mode="reduce-overhead" if device.type == "cuda" else None, dynamic=False)
        self.tokens = self._logged_tokens = 0

    def run(self, stop: Stop) -> Events[EmbeddingOutcome | None]:
        if self.capacity:
            self._compile()
        yield from self._resume()
        self._logged_tokens = self.tokens
        if not (yield from self._train(stop)):
            return None
        scores, epoch = (self.history[self.best_epoch - 1], float(self.best_epoch)) if self.best_epoch else ({}, 0.0)
        if self.step % self.steps_per_epoch:  # the last epoch is not complete
            last = yield from self._scores(self.epoch + 1)
            position = self.step / self.steps_per_epoch
            if last:
                yield Evaluated(step=self.step, seconds=self.stopwatch.elapsed, scores=last)
            if self.main_score is None or not scores or last[self.main_score] > scores[self.main_score]:
                scores, epoch, self.best_weights = last, position, {}
        with torch.no_grad():
            for name, parameter in self.model.named_parameters() if self.best_weights else ():
                parameter.copy_(self.best_weights[name])
        return EmbeddingOutcome(scores, epoch, self.step, self.tokens, self.stopwatch.elapsed, self.history)

    def _progress(self) -> StepProgress | TimeProgress:
        return StepProgress(self.steps) if self.budget is None else TimeProgress(self.budget, self.stopwatch)

    def _epoch_batches(self, epoch: int) -> Any:
        """The rows of each batch, (steps, batch size): groups of neighboring rows in random order."""
        generator, size = np.random.default_rng([self.seed, epoch]), self.config.training.group_size
        starts = generator.permutation(-(-len(self.dataset) // size)) * size
        order = (starts[:, None] + np.arange(size)).flatten()
        order = order[order < len(self.dataset)]
        return order[: self.steps_per_epoch * self.batch_size].reshape(-1, self.batch_size)

    def _inputs(self, indices: Any, step: int) -> dict[str, Any]:
        dataset, rows = self.dataset, np.asarray(indices)
        batch = pack(dataset.columns, rows, capacity=self.capacity, max_length=self.max_length)
        inputs = batch.inputs
        if dataset.scores is not None:
            inputs["scores"] = torch.from_numpy(dataset.scores[rows])
        if dataset.targets is not None:
            inputs["targets"] = torch.from_numpy(dataset.targets[rows])
        if dataset.keys is not None:
            inputs["keys"] = torch.from_numpy(dataset.keys[:, rows])
        return {"batch": batch}

    def _prepared(self, first: int) -> Iterator[EmbeddingBatch]:
        for epoch in itertools.count(first // self.steps_per_epoch):
            batches = self._epoch_batches(epoch)
            start = max(first - epoch * self.steps_per_epoch, 0)
            for index in range(start, self.steps_per_epoch):
                step = epoch * self.steps_per_epoch + index
                if step >= self.steps:
                    return
                yield self._inputs(batches[index], step)["batch"]

    def _batches(self, first: int) -> Iterator[list[dict[str, Any]]]:
        prepared = self._prepared(first)
        source = prefetch((batch.pinned() for batch in prepared) if self.device.type == "cuda" else prepared)
        try:
            for step, batch in enumerate(source, start=first):
                torch.manual_seed(derive_seed(self.seed, *divmod(step, self.steps_per_epoch)))
                self.tokens += batch.tokens  # before the step, because it is read after it
                yield [batch.to(self.device).inputs]
        finally:
            source.close()

    def _compile(self) -> None:
        """Compile in steps at learning rate 0 that are discarded, so that a time budget is spent on training."""
        steps = train(
            self.objective,
            self._batches(0),
            self.optimizers,
            progress=lambda step: 0.0,
            learning_rate=lambda done: 0.0,
            autocast=self.autocast,
        )
        for _ in itertools.islice(steps, COMPILING_STEPS):
            pass
        steps.close()
        synchronize(self.device)
        for optimizer in self.optimizers:
            optimizer.state.clear()
        self.tokens = 0

    def _largest_batch(self) -> int:
        """The tokens of the largest batch, rounded up: all compiled batches have this size."""
        lengths, largest = self.dataset.lengths, 0
        for epoch in range(min(SAMPLED_EPOCHS, -(-self.steps // self.steps_per_epoch))):
            largest = max(largest, int(lengths[self._epoch_batches(epoch)].sum(1).max()))
        return -(-largest // PADDING) * PADDING

    def _scores(self, epoch: int) -> Events[dict[str, float]]:
        if self.evaluate is None:
            return {}
        yield from self._evaluation_progress(0, 0)
        return self.evaluate()

    def _keep_weights(self, epoch: int) -> None:
        if self.main_score is not None and self.best_epoch == epoch:
            self.best_weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def _position(self) -> dict[str, Any]:
        return {**super()._position(), "tokens": self.tokens}

    def _restore_position(self, checkpoint: Any) -> None:
        super()._restore_position(checkpoint)
        self.tokens = checkpoint.state["tokens"]

    def _step_details(self, seconds: float) -> dict[str, Any]:
        details = super()._step_details(seconds)
        if self.budget is not None:
            details |= {"steps": None, "seconds_left": max(self.budget - seconds, 0.0)}
        speed = (self.tokens - self._logged_tokens) / max(seconds - self._logged, 1e-9)
        self._logged_tokens = self.tokens
        return {**details, "tokens": self.tokens, "tokens_per_second": speed}
