"""The tour: two models of the reversal lesson compared, as text, tables and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.lessons import reverse
from regard.lessons.reverse import ReverseDataset, ReverseEvaluation
from regard.models.seq2seq import Recipe, Score
from regard.render.page import figures, heat_map, page, paragraph, section, table

DECK = {"train_token_accuracy": 99.55, "test_token_accuracy": 98.125}  # without attention; it prints none with it
RECIPES = {
    "luong": "Luong's recipe: the new decoder state is the query, and state and context together predict the digit",
    "deck": "the deck's recipe: the previous decoder state is the query, and the context joins the next input",
}


@dataclass(frozen=True)
class TourRun:
    """A trained model and its evaluation."""

    name: str
    score: Score
    recipe: Recipe
    epochs: int
    seconds: float
    evaluation: ReverseEvaluation


@dataclass(frozen=True)
class TourExample:
    """A test sequence, why it is shown, its target, and each model's output with "correct" or "wrong"."""

    read: str
    reason: str
    right: str
    answers: list[tuple[str, str, str]]  # name, answer, verdict


@dataclass(frozen=True)
class TourStory:
    """The content of the tour as text and numbers. The matrix belongs to the first test sequence."""

    task: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    examples: list[TourExample]
    read: list[str]
    written: list[str]
    matrix: list[list[float]]
    mean_matrix: list[list[float]]
    meaning: str
    method: str
    seed: int


def tour_story(plain: TourRun, attending: TourRun, data: ReverseDataset, *, seed: int) -> TourStory:
    """Compare a model without attention and one with it, trained on the same data."""
    attention, alignment = attending.evaluation.attention, attending.evaluation.alignment_accuracy
    if attention is None or alignment is None:
        raise ValueError(f"the second model must have attention, not score {attending.score!r}")
    first = reverse.one_hot_decode(data.X_test[0])
    return TourStory(
        task=f"The task: read {len(first)} digits and write them backwards, {_join(first)} → {_join(first[::-1])}. "
        "One LSTM encodes them, another decodes. Without attention the decoder sees only the last encoder state; with "
        f"it, every step can attend to each digit. Both models are trained on {len(data.X_train):,} sequences and "
        f"tested on {len(data.X_test):,} others.",
        headers=("token accuracy, percent", "train", "test", "sequence accuracy", "epochs"),
        rows=[_deck_row(), _row(plain), _row(attending)],
        examples=_examples(plain, attending, data),
        read=[str(digit) for digit in first],
        written=[str(digit) for digit in attending.evaluation.answers[0].tolist()],
        matrix=attention[0].tolist(),
        mean_matrix=attention.mean(0).tolist(),
        meaning="The line from top right to bottom left, the anti-diagonal, is the reversal itself: to write its first "
        "digit the model attends to the last one it read, then to the one before, and so on. It was never told where "
        f"to attend; it only saw sequences and targets. In {alignment:.4g}% of the test steps the largest weight is on "
        "that line.",
        method=f"Encoder and decoder have {reverse.UNITS} units. Adam at {reverse.LEARNING_RATE:g}, batches of "
        f"{reverse.BATCH_SIZE} and cross-entropy are those of the deck, which does not give the epochs: here training "
        f"ends when all training digits are correct, after at most {reverse.EPOCHS} epochs. "
        "The first input of the decoder is zeros, each later one its own last output. The attention is the "
        f"{attending.score} score in {RECIPES[attending.recipe]}. Seed {seed}. The scores of the deck count digits: "
        '98.125% is 785 of 800, and no such percentage of 200 sequences exists. "Sequence accuracy" is the share of '
        "entirely correct test sequences.",
        seed=seed,
    )


def tour_page(story: TourStory) -> str:
    """The story as one page."""
    positions = range(1, len(story.read) + 1)
    one = heat_map(
        story.matrix,
        rows=story.written,
        columns=story.read,
        title=f"{' '.join(story.read)}, a test sequence",
        row_title="written",
        column_title="read",
    )
    mean = heat_map(
        story.mean_matrix,
        rows=[_ordinal(position) for position in positions],
        columns=[_ordinal(position) for position in positions],
        title="Mean over the test set",
        row_title="written",
        column_title="read",
    )
    models = [name for name, _, _ in story.examples[0].answers]
    answers = [
        (example.read, example.right, *(f"{answer} {verdict}" for _, answer, verdict in example.answers))
        for example in story.examples
    ]
    caveat = "Attention to a digit does not prove that the model uses it."
    return page(
        "Attention learns to read backwards",
        [
            paragraph(story.task),
            section("Accuracy", table(story.headers, story.rows)),
            section("Attention", figures(one, mean), paragraph(f"{story.meaning} {caveat}")),
            section("Outputs", table(("input", "target", *models), answers)),
            section("Method", paragraph(story.method)),
        ],
        cli=f"regard tour --seed {story.seed}",
        python="from regard.lessons import reverse\n\n"
        "sizes = reverse.TRAIN_SIZE, reverse.TEST_SIZE, reverse.TIMESTEPS, reverse.FEATURES\n"
        f"data = reverse.create_dataset(*sizes, seed={story.seed})\n"
        f"model = reverse.new_model(data, score='dot', seed={story.seed})\n"
        f"for epoch in reverse.train_reverse(model, data, epochs=reverse.EPOCHS, seed={story.seed}):\n"
        "    pass\n"
        "print(reverse.evaluate(model, data).attention[0])",
    )


def _deck_row() -> tuple[str, ...]:
    return ("the deck, without attention", *(f"{figure:.3f}" for figure in DECK.values()), "-", "-")


def _row(run: TourRun) -> tuple[str, ...]:
    train, test = run.evaluation.train, run.evaluation.test
    accuracies = train.token_accuracy, test.token_accuracy, test.sequence_accuracy
    return (run.name, *(f"{figure:.3f}" for figure in accuracies), str(run.epochs))


def _examples(plain: TourRun, attending: TourRun, data: ReverseDataset) -> list[TourExample]:
    """The first test sequence, and the first that the model without attention gets wrong, if there is one."""
    targets = data.y_test.argmax(-1)
    wrong = (plain.evaluation.answers != targets).any(-1).nonzero().flatten().tolist()
    chosen = [(0, "which neither model saw in training")]
    if wrong and wrong[0] != 0:
        chosen.append((wrong[0], f"which the model {plain.name} gets wrong"))
    examples = []
    for number, reason in chosen:
        target: list[int] = targets[number].tolist()
        answers = []
        for run in (plain, attending):
            answer: list[int] = run.evaluation.answers[number].tolist()
            answers.append((run.name, _join(answer), "correct" if answer == target else "wrong"))
        examples.append(TourExample(_join(target[::-1]), reason, _join(target), answers))
    return examples


def _join(digits: Sequence[int]) -> str:
    return " ".join(str(digit) for digit in digits)


def _ordinal(number: int) -> str:
    return f"{number}{'th' if 10 <= number % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
