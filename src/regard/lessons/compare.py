"""The reversed-sequence lesson as an experiment: no attention against every score and recipe, with one setting for all.

Knows which models are compared, at which lengths, with what budget, and what is kept of each. Knows nothing of
processes, files, pages or the command line.

    setting = choose_setting(steps=20, features=16)
    runs = [train_task(task) for task in plan(setting)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from regard.errors import InputError
from regard.lessons import reverse
from regard.lessons.reverse import Accuracy, Dataset, Epoch, Measures
from regard.models.seq2seq import Recipe, Score

__all__ = ["Comparison", "Run", "Setting", "Task", "choose_lengths", "choose_setting", "gather", "plan", "train_task"]

KINDS: tuple[tuple[Score, Recipe], ...] = (
    ("none", "luong"),
    ("dot", "luong"),
    ("general", "luong"),
    ("additive", "luong"),
    ("dot", "deck"),
    ("general", "deck"),
    ("additive", "deck"),
)
ALONG = KINDS[:2]  # the two that are also trained at other lengths
SHORT = 8  # up to this many digits the deck's setting is enough


@dataclass(frozen=True)
class Setting:
    """The data and the budget that all runs share; the defaults are the deck's, which is silent of the epochs.

    `clip` is the length above which a gradient is cut; 0 leaves it. A training ends before its last epoch when `enough`
    percent of the training digits are right.
    """

    steps: int = reverse.TIMESTEPS
    features: int = reverse.FEATURES
    units: int = reverse.UNITS
    train_size: int = reverse.TRAIN_SIZE
    test_size: int = reverse.TEST_SIZE
    batch_size: int = reverse.BATCH_SIZE
    learning_rate: float = reverse.LEARNING_RATE
    clip: float = 0.0
    epochs: int = reverse.EPOCHS
    enough: float = 100.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "features", "units", "train_size", "test_size", "batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', ' ')} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"the learning rate must be a number above 0, not {self.learning_rate}")
        if not 0 <= self.clip < math.inf:
            raise InputError(f"clip must be 0 (no clipping) or a number above it, not {self.clip}")
        possible = reverse.room(self.steps, self.features)
        if self.train_size + self.test_size > possible:
            raise InputError(
                f"there are only {self.features}^{self.steps} = {possible:,} different sequences of {self.steps} "
                f"steps and {self.features} features, not the {self.train_size:,} + {self.test_size:,} of train size "
                "and test size; lower these, or raise steps or features"
            )


LONG = Setting(
    steps=20,
    features=16,
    units=64,
    train_size=20_000,
    test_size=1000,
    batch_size=100,
    learning_rate=3e-3,
    clip=1.0,
    epochs=8,
    enough=99.9,  # at this rate the last few of 400,000 digits come and go
)


@dataclass(frozen=True)
class Task:
    """One model to train."""

    score: Score
    recipe: Recipe
    setting: Setting

    @property
    def name(self) -> str:
        return "no attention" if self.score == "none" else f"{self.score}, {self.recipe}"


@dataclass(frozen=True)
class Run:
    """What came of a task, in plain numbers. Accuracies are percent; `by_place` is the test's for each digit written.

    `read`, `written` and `matrix` (what it looked at while it wrote) are of the first test sequence; `mean_matrix` is
    over all of the test. Matrices are None without attention.
    """

    task: Task
    epochs: int
    seconds: float
    train: Accuracy
    test: Accuracy
    alignment_accuracy: float | None
    by_place: list[float]
    read: list[int]
    written: list[int]
    matrix: list[list[float]] | None
    mean_matrix: list[list[float]] | None


@dataclass(frozen=True)
class Comparison:
    """`runs` at the setting's own length, one for each of `KINDS`; `lengths`: no attention and Luong's dot at each."""

    setting: Setting
    runs: list[Run]
    lengths: list[tuple[int, Run, Run]]

    @property
    def best(self) -> Run:
        """The run with attention that has the most test digits right; of equals, the one that looks right most."""
        return max(self.runs[1:], key=lambda run: (run.test.token_accuracy, run.alignment_accuracy or 0.0))


def choose_setting(
    *,
    steps: int = Setting.steps,
    features: int = Setting.features,
    units: int | None = None,
    train_size: int | None = None,
    test_size: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    clip: float | None = None,
    epochs: int | None = None,
    seed: int = 0,
) -> Setting:
    """What is not said is the deck's for up to 8 steps, and for longer sequences a setting that can learn them."""
    base = Setting() if steps <= SHORT else LONG
    return Setting(
        steps=steps,
        features=features,
        units=base.units if units is None else units,
        train_size=base.train_size if train_size is None else train_size,
        test_size=base.test_size if test_size is None else test_size,
        batch_size=base.batch_size if batch_size is None else batch_size,
        learning_rate=base.learning_rate if learning_rate is None else learning_rate,
        clip=base.clip if clip is None else clip,
        epochs=base.epochs if epochs is None else epochs,
        enough=base.enough,
        seed=seed,
    )


def choose_lengths(setting: Setting) -> list[int]:
    """Lengths to compare where none are said: quarters of the steps, or their double and triple where these are few.

    Lengths that have too few different sequences are left out.
    """
    steps = setting.steps
    wanted = [steps, 2 * steps, 3 * steps] if steps <= SHORT else [steps * part // 4 for part in (1, 2, 3, 4)]
    needed = setting.train_size + setting.test_size
    return [length for length in wanted if reverse.room(length, setting.features) >= needed]


def plan(setting: Setting, lengths: Sequence[int] | None = None) -> list[Task]:
    """All that must be trained: every kind at the setting's length, and two kinds at the other lengths."""
    tasks = [Task(score, recipe, setting) for score, recipe in KINDS]
    for length in sorted(set(choose_lengths(setting) if lengths is None else lengths) - {setting.steps}):
        tasks += [Task(score, recipe, replace(setting, steps=length)) for score, recipe in ALONG]
    return tasks


def gather(runs: Sequence[Run]) -> Comparison:
    """The runs of a plan, in its order, as a comparison."""
    setting = runs[0].task.setting
    own, others = list(runs[: len(KINDS)]), runs[len(KINDS) :]
    pairs = [own[:2], *(others[start : start + 2] for start in range(0, len(others), 2))]
    lengths = [(plain.task.setting.steps, plain, attending) for plain, attending in pairs]
    return Comparison(setting, own, sorted(lengths, key=lambda entry: entry[0]))


def train_task(task: Task, on_epoch: Callable[[Epoch], None] = lambda epoch: None) -> Run:
    """Train one model until enough training digits are right, or the epochs are over, and measure it."""
    setting = task.setting
    sizes = setting.train_size, setting.test_size, setting.steps, setting.features
    data = reverse.create_dataset(*sizes, seed=setting.seed)
    model = reverse.new_model(data, score=task.score, recipe=task.recipe, units=setting.units, seed=setting.seed)
    training = reverse.train_reverse(
        model,
        data,
        epochs=setting.epochs,
        batch_size=setting.batch_size,
        learning_rate=setting.learning_rate,
        clip=setting.clip or None,
        seed=setting.seed,
    )
    for epoch in training:
        on_epoch(epoch)
        if epoch.train.token_accuracy >= setting.enough:
            break
    return _run(task, epoch, data, reverse.measure(model, data))


def _run(task: Task, epoch: Epoch, data: Dataset, measures: Measures) -> Run:
    right = (measures.answers == data.y_test.argmax(-1)).double().mean(0)
    attention = measures.attention
    return Run(
        task=task,
        epochs=epoch.number,
        seconds=epoch.seconds,
        train=measures.train,
        test=measures.test,
        alignment_accuracy=measures.alignment_accuracy,
        by_place=(100 * right).tolist(),
        read=reverse.one_hot_decode(data.X_test[0]),
        written=measures.answers[0].tolist(),
        matrix=None if attention is None else attention[0].tolist(),
        mean_matrix=None if attention is None else attention.mean(0).tolist(),
    )
