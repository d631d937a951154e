"""The reversal lesson as an experiment: no attention against every score and recipe, with the same data and budget.

config = reverse_config(steps=20, features=16)
runs = [train_task(task) for task in plan_tasks(config)]
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from regard.errors import InputError, RegardError
from regard.lessons import reverse
from regard.lessons.reverse import Accuracy, ReverseDataset, ReverseEpoch, ReverseEvaluation
from regard.models.seq2seq import Recipe, Score
from regard.training.stopping import stopping

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


OnEpoch = Callable[[ReverseTask, ReverseEpoch], None]
OnRun = Callable[[ReverseRun], None]


def train_all(
    tasks: Sequence[ReverseTask], *, jobs: int | None = None, on_epoch: OnEpoch, on_run: OnRun
) -> list[ReverseRun]:
    """Train all tasks, `jobs` at a time (by default one per available core), and return the runs in order.

    An error or Ctrl-C leaves no process behind.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be at least 1, not {jobs}")
    jobs = min(_cores() if jobs is None else jobs, len(tasks))
    if jobs > 1:
        return _train_in_processes(tasks, jobs, on_epoch, on_run)
    runs = []
    for task in tasks:
        runs.append(train_task(task, lambda epoch, task=task: on_epoch(task, epoch)))  # type: ignore[misc]
        on_run(runs[-1])
    return runs


def _train_in_processes(tasks: Sequence[ReverseTask], jobs: int, on_epoch: OnEpoch, on_run: OnRun) -> list[ReverseRun]:
    # Longest first, so that none is left alone at the end.
    waiting = sorted(range(len(tasks)), key=lambda number: tasks[number].config.steps)
    working: dict[Connection, tuple[int, BaseProcess]] = {}
    runs: dict[int, ReverseRun] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                number = waiting.pop()
                with stopping() as stop, _interrupts_blocked():
                    ours, process = _start_process(tasks[number])
                    working[ours] = number, process
                stop.deliver()
            for connection in wait(list(working)):
                assert isinstance(connection, Connection)
                number, process = working[connection]
                message = _receive(connection, process)
                if isinstance(message, ReverseEpoch):
                    on_epoch(tasks[number], message)
                else:
                    runs[number] = message
                    del working[connection]
                    process.join()
                    connection.close()
                    on_run(message)
    finally:
        for connection, (_, process) in working.items():
            process.terminate()
            process.join()
            connection.close()
    return [runs[number] for number in range(len(tasks))]


def _start_process(task: ReverseTask) -> tuple[Connection, BaseProcess]:
    """Start a process for the task; the connection receives its messages."""
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads in an unknown state
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _work(task: ReverseTask, connection: Connection) -> None:
    """Send every epoch and then the run, or the error that ended it."""
    with suppress(BrokenPipeError):  # the parent process has ended
        try:
            connection.send(train_task(task, connection.send))
        except BrokenPipeError:
            raise
        except Exception as error:
            connection.send(error)


def _receive(connection: Connection, process: BaseProcess) -> ReverseEpoch | ReverseRun:
    try:
        message = connection.recv()
    except EOFError:
        process.join()
        raise RegardError(
            f"a training process ended unexpectedly (exit code {process.exitcode}); there may be too little memory: "
            "try fewer jobs at a time"
        ) from None
    if isinstance(message, Exception):
        raise message
    assert isinstance(message, ReverseEpoch | ReverseRun)
    return message


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start child processes with SIGINT blocked: a terminal sends Ctrl-C to all, and the parent ends its children.

    They inherit the signal mask of this thread. Here a Ctrl-C is delivered at the end; ignoring it would lose it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
