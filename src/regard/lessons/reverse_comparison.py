"""The reversal lesson as an experiment: no attention against every score and recipe, with the same data and budget.

config = reverse_config(steps=20, features=16)
runs = [train_task(task) for task in plan_tasks(config)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from regard.errors import InputError
from regard.lessons import reverse
from regard.lessons.reverse import Accuracy, ReverseDataset, ReverseEpoch, ReverseEvaluation
from regard.models.seq2seq import Recipe, Score

MODELS: tuple[tuple[Score, Recipe], ...] = (
    ("none", "luong"),
    ("dot", "luong"),
    ("general", "luong"),
    ("additive", "luong"),
    ("dot", "deck"),
    ("general", "deck"),
    ("additive", "deck"),
)
MODELS_BY_LENGTH = MODELS[:2]  # also trained at other lengths
MAX_SHORT_STEPS = 8  # the deck's configuration suffices up to this length


@dataclass(frozen=True)
class ReverseConfig:
    """The data and the budget that all runs share; the defaults are those of the deck, which does not give the epochs.

    `max_grad_norm` 0 disables clipping. Training ends early when `target_accuracy` percent of the training digits are
    right.
    """

    steps: int = reverse.TIMESTEPS
    features: int = reverse.FEATURES
    units: int = reverse.UNITS
    train_size: int = reverse.TRAIN_SIZE
    test_size: int = reverse.TEST_SIZE
    batch_size: int = reverse.BATCH_SIZE
    learning_rate: float = reverse.LEARNING_RATE
    max_grad_norm: float = 0.0
    epochs: int = reverse.EPOCHS
    target_accuracy: float = 100.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "features", "units", "train_size", "test_size", "batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', ' ')} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"the learning rate must be a number above 0, not {self.learning_rate}")
        if not 0 <= self.max_grad_norm < math.inf:
            raise InputError(f"max_grad_norm must be 0 (no clipping) or above, not {self.max_grad_norm}")
        possible = reverse.count_sequences(self.steps, self.features)
        if self.train_size + self.test_size > possible:
            raise InputError(
                f"there are only {self.features}^{self.steps} = {possible:,} different sequences of {self.steps} "
                f"steps and {self.features} features, not the {self.train_size:,} + {self.test_size:,} of train size "
                "and test size; lower these, or raise steps or features"
            )


LONG = ReverseConfig(
    steps=20,
    features=16,
    units=64,
    train_size=20_000,
    test_size=1000,
    batch_size=100,
    learning_rate=3e-3,
    max_grad_norm=1.0,
    epochs=8,
    target_accuracy=99.9,  # at this learning rate the last few of 400,000 digits fluctuate
)


@dataclass(frozen=True)
class ReverseTask:
    """One model to train."""

    score: Score
    recipe: Recipe
    config: ReverseConfig

    @property
    def name(self) -> str:
        return "no attention" if self.score == "none" else f"{self.score}, {self.recipe}"


@dataclass(frozen=True)
class ReverseRun:
    """The results of a task. Accuracies are percent; `accuracy_by_position` is the test accuracy of each output digit.

    `read`, `written` and `matrix` (attention weights) belong to the first test sequence; `mean_matrix` is the mean over
    the test set. Matrices are None without attention.
    """

    task: ReverseTask
    epochs: int
    seconds: float
    train: Accuracy
    test: Accuracy
    alignment_accuracy: float | None
    accuracy_by_position: list[float]
    read: list[int]
    written: list[int]
    matrix: list[list[float]] | None
    mean_matrix: list[list[float]] | None


@dataclass(frozen=True)
class ReverseComparison:
    """`runs` at the configured length, one for each of `MODELS`; `lengths`: no attention and Luong's dot at each."""

    config: ReverseConfig
    runs: list[ReverseRun]
    lengths: list[tuple[int, ReverseRun, ReverseRun]]

    @property
    def best(self) -> ReverseRun:
        """The run with attention that has the highest test accuracy; ties go to the higher alignment accuracy."""
        return max(self.runs[1:], key=lambda run: (run.test.token_accuracy, run.alignment_accuracy or 0.0))


def reverse_config(
    *,
    steps: int = ReverseConfig.steps,
    features: int = ReverseConfig.features,
    units: int | None = None,
    train_size: int | None = None,
    test_size: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    max_grad_norm: float | None = None,
    epochs: int | None = None,
    seed: int = 0,
) -> ReverseConfig:
    """Fill in defaults: those of the deck for up to 8 steps, and a configuration that can learn longer sequences."""
    base = ReverseConfig() if steps <= MAX_SHORT_STEPS else LONG
    return ReverseConfig(
        steps=steps,
        features=features,
        units=base.units if units is None else units,
        train_size=base.train_size if train_size is None else train_size,
        test_size=base.test_size if test_size is None else test_size,
        batch_size=base.batch_size if batch_size is None else batch_size,
        learning_rate=base.learning_rate if learning_rate is None else learning_rate,
        max_grad_norm=base.max_grad_norm if max_grad_norm is None else max_grad_norm,
        epochs=base.epochs if epochs is None else epochs,
        target_accuracy=base.target_accuracy,
        seed=seed,
    )


def default_lengths(config: ReverseConfig) -> list[int]:
    """Default lengths to compare: quarters of the steps, or their double and triple for short sequences.

    Lengths with too few distinct sequences are left out.
    """
    steps = config.steps
    wanted = [steps, 2 * steps, 3 * steps] if steps <= MAX_SHORT_STEPS else [steps * part // 4 for part in (1, 2, 3, 4)]
    needed = config.train_size + config.test_size
    return [length for length in wanted if reverse.count_sequences(length, config.features) >= needed]


def plan_tasks(config: ReverseConfig, lengths: Sequence[int] | None = None) -> list[ReverseTask]:
    """All tasks: every model at the configured length, and two models at the other lengths."""
    tasks = [ReverseTask(score, recipe, config) for score, recipe in MODELS]
    for length in sorted(set(default_lengths(config) if lengths is None else lengths) - {config.steps}):
        tasks += [ReverseTask(score, recipe, replace(config, steps=length)) for score, recipe in MODELS_BY_LENGTH]
    return tasks


def collect_runs(runs: Sequence[ReverseRun]) -> ReverseComparison:
    """Build the comparison from the runs of `plan_tasks`, in its order."""
    config = runs[0].task.config
    own, others = list(runs[: len(MODELS)]), runs[len(MODELS) :]
    pairs = [own[:2], *(others[start : start + 2] for start in range(0, len(others), 2))]
    lengths = [(plain.task.config.steps, plain, attending) for plain, attending in pairs]
    return ReverseComparison(config, own, sorted(lengths, key=lambda entry: entry[0]))


def train_task(task: ReverseTask, on_epoch: Callable[[ReverseEpoch], None] = lambda epoch: None) -> ReverseRun:
    """Train one model until the target accuracy or the last epoch, and evaluate it."""
    config = task.config
    sizes = config.train_size, config.test_size, config.steps, config.features
    data = reverse.create_dataset(*sizes, seed=config.seed)
    model = reverse.new_model(data, score=task.score, recipe=task.recipe, units=config.units, seed=config.seed)
    training = reverse.train_reverse(
        model,
        data,
        epochs=config.epochs,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm or None,
        seed=config.seed,
    )
    for epoch in training:
        on_epoch(epoch)
        if epoch.train.token_accuracy >= config.target_accuracy:
            break
    return _run(task, epoch, data, reverse.evaluate(model, data))


def _run(task: ReverseTask, epoch: ReverseEpoch, data: ReverseDataset, evaluation: ReverseEvaluation) -> ReverseRun:
    right = (evaluation.answers == data.y_test.argmax(-1)).double().mean(0)
    attention = evaluation.attention
    return ReverseRun(
        task=task,
        epochs=epoch.number,
        seconds=epoch.seconds,
        train=evaluation.train,
        test=evaluation.test,
        alignment_accuracy=evaluation.alignment_accuracy,
        accuracy_by_position=(100 * right).tolist(),
        read=reverse.one_hot_decode(data.X_test[0]),
        written=evaluation.answers[0].tolist(),
        matrix=None if attention is None else attention[0].tolist(),
        mean_matrix=None if attention is None else attention.mean(0).tolist(),
    )
