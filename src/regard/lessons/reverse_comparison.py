"""The reversal lesson as an experiment: no attention against every score and recipe, with the same data and budget.

config = reverse_config(steps=20, features=16)
runs = [train_task(task) for task in plan_tasks(config)]
print(collect_runs(runs).story())
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from regard.errors import InputError
from regard.lessons import reverse
from regard.lessons.reverse import Accuracy, ReverseEpoch
from regard.models.seq2seq import Recipe, Score
from regard.render.story import (
    ChartLine,
    FigureRow,
    HeatMap,
    LineChart,
    Paragraph,
    Section,
    Story,
    StoryBlock,
    StoryTable,
)

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
DECK = {"train_token_accuracy": 99.55, "test_token_accuracy": 98.125}  # without attention; it prints none with it
RECIPES = {
    "luong": "Luong's recipe: the new decoder state is the query, and state and context together predict the digit",
    "deck": "the deck's recipe: the previous decoder state is the query, and the context joins the next input",
}
DECK_NOTE = (
    "The scores of the deck (4 digits of 10, 16 units, 2,000 sequences) count digits: 98.125% is 785 of 800, and no "
    "such percentage of 200 sequences exists."
)
ALIGNMENT_NOTE = (
    '"Aligned" is the percentage of test steps whose largest attention weight is on the digit to write, the '
    "anti-diagonal. Attention to a digit does not prove that the model uses it."
)


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
        reverse.check_sizes(
            train_size=self.train_size,
            test_size=self.test_size,
            steps=self.steps,
            features=self.features,
            units=self.units,
            batch_size=self.batch_size,
            epochs=self.epochs,
        )
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"the learning rate must be a number above 0, not {self.learning_rate}")
        if not 0 <= self.max_grad_norm < math.inf:
            raise InputError(f"max_grad_norm must be 0 (no clipping) or above, not {self.max_grad_norm}")

    def description(self) -> str:
        """The configuration in words."""
        clip = f", gradients clipped to norm {self.max_grad_norm:g}" if self.max_grad_norm else ""
        return (
            f"Every model has {self.units} units and is trained with Adam at learning rate {self.learning_rate:g}, "
            f"batches of {self.batch_size}{clip}, for at most {self.epochs} epochs or until {self.target_accuracy:g}% "
            "of the training digits are correct. The first input of the decoder is zeros, each later one its own last "
            f"output. Seed {self.seed}."
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


def reverse_config(
    *,
    steps: int = reverse.TIMESTEPS,
    features: int = reverse.FEATURES,
    as_in_deck: bool = False,
    **options: float | None,
) -> ReverseConfig:
    """Fill in defaults: those of the deck for up to 8 steps, and a configuration that can learn longer sequences.

    With `as_in_deck` those of the deck for any length, as its exercise has them.
    """
    given = {name: value for name, value in options.items() if value is not None}
    base = ReverseConfig() if as_in_deck or steps <= MAX_SHORT_STEPS else LONG
    return replace(base, steps=steps, features=features, **given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ReverseTask:
    """One model to train; the test set starts with the sequences of `held_out`."""

    score: Score
    recipe: Recipe
    config: ReverseConfig
    held_out: tuple[tuple[int, ...], ...] = ()

    @property
    def name(self) -> str:
        return "no attention" if self.score == "none" else f"{self.score}, {self.recipe}"


@dataclass(frozen=True)
class ReverseRun:
    """The results of a task. Accuracies are percent.

    `inputs` and `answers` are the digits of the test set. `matrix` (attention weights) belongs to its first sequence;
    `mean_matrix` is the mean over the test set. Matrices are None without attention.
    """

    task: ReverseTask
    epochs: int
    seconds: float
    train: Accuracy
    test: Accuracy
    alignment_accuracy: float | None
    inputs: list[list[int]]
    answers: list[list[int]]
    matrix: list[list[float]] | None
    mean_matrix: list[list[float]] | None

    @property
    def accuracy_by_position(self) -> list[float]:
        """The test accuracy of each output digit."""
        right = np.array(self.answers) == np.array(self.inputs)[:, ::-1]
        accuracies: list[float] = (100 * right.mean(0)).tolist()
        return accuracies

    def summary(self) -> dict[str, object]:
        """The scores for the JSON document; `recipe` is null without attention."""
        return {
            "score": self.task.score,
            "recipe": None if self.task.score == "none" else self.task.recipe,
            "train_token_accuracy": self.train.token_accuracy,
            "test_token_accuracy": self.test.token_accuracy,
            "test_sequence_accuracy": self.test.sequence_accuracy,
            "alignment_accuracy": self.alignment_accuracy,
            "epochs": self.epochs,
            "seconds": round(self.seconds, 3),
        }

    def to_dict(self) -> dict[str, object]:
        return {
            **self.summary(),
            "token_accuracy_by_position": self.accuracy_by_position,
            "read": self.inputs[0],
            "written": self.answers[0],
            "weights": self.matrix,
        }

    def score_cells(self) -> list[str]:
        """Token accuracy in training and test, sequence accuracy and alignment accuracy for a table."""
        scores = self.train.token_accuracy, self.test.token_accuracy, self.test.sequence_accuracy
        return ["-" if score is None else f"{score:.3f}" for score in (*scores, self.alignment_accuracy)]

    def heat_map(self, title: str) -> HeatMap:
        """The attention on the first test sequence."""
        assert self.matrix is not None
        rows, columns = list(map(str, self.answers[0])), list(map(str, self.inputs[0]))
        return _attention_map(self.matrix, title, rows, columns)

    def mean_heat_map(self, title: str) -> HeatMap:
        assert self.mean_matrix is not None
        positions = [str(position) for position in range(1, self.task.config.steps + 1)]
        return _attention_map(self.mean_matrix, title, positions, positions)


def _attention_map(weights: list[list[float]], title: str, rows: list[str], columns: list[str]) -> HeatMap:
    return HeatMap(weights=weights, rows=rows, columns=columns, title=title, row_title="written", column_title="read")


def verdict(answer: Sequence[int], read: Sequence[int]) -> str:
    return "correct" if list(answer) == list(read)[::-1] else "wrong"


def join_digits(digits: Sequence[int]) -> str:
    return " ".join(map(str, digits))


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

    def to_dict(self) -> dict[str, object]:
        """The document of --json."""
        lengths = [{"steps": length, "runs": [run.to_dict() for run in runs]} for length, *runs in self.lengths]
        runs = [run.to_dict() for run in self.runs]
        return {"setting": asdict(self.config), "deck": DECK, "runs": runs, "lengths": lengths}

    def story(self) -> Story:
        config = self.config
        where = HeatMap(
            weights=[[percent / 100 for percent in run.accuracy_by_position] for run in self.runs],
            rows=[run.task.name for run in self.runs],
            columns=[str(position) for position in range(1, config.steps + 1)],
            title="Accuracy at each position of the output",
            row_title="model",
            column_title="position",
        )
        others = [run.heat_map(run.task.name) for run in self.runs[1:] if run is not self.best]
        mean = self.best.mean_heat_map(f"{self.best.task.name}: mean over the test set, by position")
        attention: list[StoryBlock] = [
            Paragraph(text="One test sequence: rows are the output digits, columns the input digits."),
            self.best.heat_map(self.best.task.name),
            FigureRow(blocks=others, page_only=True),
            FigureRow(blocks=[mean], page_only=True),
        ]
        method = f"{config.description()} luong: {RECIPES['luong']}; deck: {RECIPES['deck']}. {DECK_NOTE}"
        story = Story(
            title="The bottleneck, and attention as its cure",
            blocks=[
                Paragraph(text=self._task()),
                Section(heading="Accuracy", blocks=[self.table(), Paragraph(text=ALIGNMENT_NOTE)]),
                Section(heading="Accuracy against length", blocks=self._length_blocks()),
                Section(heading="Accuracy by position", blocks=[where]),
                Section(heading="Attention", blocks=attention),
                Section(heading="Outputs", blocks=[self._outputs()]),
                Section(heading="Method", blocks=[Paragraph(text=method)]),
            ],
        )
        lengths = [length for length, *_ in self.lengths]
        options = {name: value for name, value in asdict(config).items() if name != "target_accuracy"}
        options["lengths"] = ",".join(map(str, lengths))
        given = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
        story.with_reproduction(
            f"regard lesson reverse {given} --output page.html",
            "from regard.lessons.reverse_comparison import ReverseConfig, collect_runs, plan_tasks, train_task\n\n"
            f"tasks = plan_tasks({config!r}, {lengths!r})\n"
            "comparison = collect_runs([train_task(task) for task in tasks])",
        )
        return story

    def _task(self) -> str:
        config = self.config
        return (
            f"The task: read {config.steps} digits from 0 to {config.features - 1} and write them backwards. One LSTM "
            "encodes them, another decodes. Without attention the decoder sees only the last encoder state, however "
            "long the sequence is; with it, every step can attend to each digit. All models are trained on the same "
            f"{config.train_size:,} sequences and are tested on {config.test_size:,} others."
        )

    def table(self) -> StoryTable:
        """The scores of the runs, after those of the deck."""
        headers = ("token accuracy, percent", "train", "test", "sequence accuracy", "aligned", "epochs")
        rows = [("the deck, no attention", *(f"{score:.3f}" for score in DECK.values()), "-", "-", "-")]
        for run in self.runs:
            rows.append((run.task.name, *run.score_cells(), str(run.epochs)))
        return StoryTable(headers=headers, rows=rows)

    def length_table(self) -> StoryTable:
        """Test token accuracy without attention and with Luong's dot attention, at each length."""
        headers = ("digits to reverse", *(run.task.name for run in self.runs[:2]))
        rows = [(str(length), *(f"{run.test.token_accuracy:.3f}" for run in runs)) for length, *runs in self.lengths]
        return StoryTable(headers=headers, rows=rows)

    def _length_blocks(self) -> list[StoryBlock]:
        text = "Two models are trained per length, with the same number of sequences, units and epochs."
        blocks: list[StoryBlock] = [self.length_table(), Paragraph(text=text)]
        if len(self.lengths) < 2:
            return blocks
        at, plain, attending = zip(*self.lengths, strict=True)
        lines = [
            ChartLine(name=runs[0].task.name, values=[run.test.token_accuracy for run in runs])
            for runs in (plain, attending)
        ]
        title = "Test accuracy, percent"
        chart = LineChart(lines=lines, at=list(at), title=title, across="digits to reverse", up="percent per token")
        return [chart, *blocks]

    def _outputs(self) -> StoryTable:
        read = self.runs[0].inputs[0]
        rows = [("read", join_digits(read), ""), ("target", join_digits(read[::-1]), "")]
        for run in self.runs:
            rows.append((run.task.name, join_digits(run.answers[0]), verdict(run.answers[0], read)))
        return StoryTable(headers=("", "one test sequence", ""), rows=rows)


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
    data = reverse.create_dataset(*sizes, seed=config.seed, held_out=task.held_out)
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
    evaluation = reverse.evaluate(model, data)
    attention = evaluation.attention
    return ReverseRun(
        task=task,
        epochs=epoch.number,
        seconds=epoch.seconds,
        train=evaluation.train,
        test=evaluation.test,
        alignment_accuracy=evaluation.alignment_accuracy,
        inputs=data.X_test.argmax(-1).tolist(),
        answers=evaluation.answers.tolist(),
        matrix=None if attention is None else attention[0].tolist(),
        mean_matrix=None if attention is None else attention.mean(0).tolist(),
    )
