"""The tour's story: what two trained models of the reversed-sequence lesson have to tell, in words and as a page.

Knows the lesson's results and how to explain them. Knows nothing of the terminal or of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.lessons import reverse
from regard.lessons.reverse import Dataset, Measures
from regard.models.seq2seq import Recipe, Score
from regard.render.page import figures, heat_map, page, paragraph, section, table

__all__ = ["DECK", "Example", "Run", "Story", "tell", "tour_page"]

DECK = {"train_token_accuracy": 99.55, "test_token_accuracy": 98.125}  # without attention; it prints none with it
RECIPES = {
    "luong": "Luong's recipe: the writer's new state looks back, and state and context together give the digit",
    "deck": "the deck's recipe: the writer's previous state looks back, and the context joins its next input",
}


@dataclass(frozen=True)
class Run:
    """One model's training and what came of it."""

    name: str
    score: Score
    recipe: Recipe
    epochs: int
    seconds: float
    measures: Measures


@dataclass(frozen=True)
class Example:
    """A test sequence, why it is shown, what should come of it, and each model's answer with "right" or "wrong"."""

    read: str
    reason: str
    right: str
    answers: list[tuple[str, str, str]]  # name, answer, verdict


@dataclass(frozen=True)
class Story:
    """Everything there is to say, as text and plain numbers. The matrix belongs to the first test sequence."""

    task: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    examples: list[Example]
    read: list[str]
    written: list[str]
    matrix: list[list[float]]
    mean_matrix: list[list[float]]
    meaning: str
    method: str
    seed: int


def tell(plain: Run, attending: Run, data: Dataset, *, seed: int) -> Story:
    """The story of a model without attention and one with it, trained on the same data."""
    attention, alignment = attending.measures.attention, attending.measures.alignment_accuracy
    if attention is None or alignment is None:
        raise ValueError(f"the second model must have attention, not score {attending.score!r}")
    first = reverse.one_hot_decode(data.X_test[0])
    return Story(
        task=f"The task: read {len(first)} digits and write them backwards, {_said(first)} → {_said(first[::-1])}. "
        "One LSTM reads, another writes. Without attention all the writer knows is the reader's last state; with it, "
        f"every step can look back at each digit. Both models learn from {len(data.X_train):,} sequences and are "
        f"tested on {len(data.X_test):,} others.",
        headers=("right digits, percent per token", "train", "test", "whole sequences", "epochs"),
        rows=[_deck_row(), _row(plain), _row(attending)],
        examples=_examples(plain, attending, data),
        read=[str(digit) for digit in first],
        written=[str(digit) for digit in attending.measures.answers[0].tolist()],
        matrix=attention[0].tolist(),
        mean_matrix=attention.mean(0).tolist(),
        meaning="The line from top right to bottom left, the anti-diagonal, is the reversal itself: to write its first "
        "digit the model looks at the last one it read, then at the one before, and so on. Nobody told it where to "
        f"look; it only saw sequences and answers. In {alignment:.4g}% of the steps of the test its strongest look is "
        "on that line.",
        method=f"Reader and writer have {reverse.UNITS} units. Adam at {reverse.LEARNING_RATE:g}, batches of "
        f"{reverse.BATCH_SIZE} and cross-entropy are the deck's. It does not say how long it trained: here it is until "
        f"no training digit is wrong, but {reverse.EPOCHS} epochs at most. "
        "The writer's first input is zeros, each later one its own last output. The attention is the "
        f"{attending.score} score in {RECIPES[attending.recipe]}. Seed {seed}. The deck's figures count digits too: "
        '98.125% is 785 of 800, and there is no such percentage of 200 sequences. "Whole sequences" '
        "is the share of test sequences without a wrong digit.",
        seed=seed,
    )


def tour_page(story: Story) -> str:
    """The story as one page."""
    places = range(1, len(story.read) + 1)
    one = heat_map(
        story.matrix,
        rows=story.written,
        columns=story.read,
        title=f"{' '.join(story.read)}, a sequence it never saw",
        row_title="written",
        column_title="read",
    )
    mean = heat_map(
        story.mean_matrix,
        rows=[_ordinal(place) for place in places],
        columns=[_ordinal(place) for place in places],
        title="Mean over the whole test set",
        row_title="written",
        column_title="read",
    )
    models = [name for name, _, _ in story.examples[0].answers]
    answers = [
        (example.read, example.right, *(f"{answer} {verdict}" for _, answer, verdict in example.answers))
        for example in story.examples
    ]
    caveat = "That it looks at the right digit does not yet prove that it uses what it finds there."
    return page(
        "Attention learns to read backwards",
        [
            paragraph(story.task),
            section("How well they do", table(story.headers, story.rows)),
            section("Where the one with attention looks", figures(one, mean), paragraph(f"{story.meaning} {caveat}")),
            section("What they write", table(("read", "should become", *models), answers)),
            section("How this was made", paragraph(story.method)),
        ],
        cli=f"regard tour --seed {story.seed}",
        python="from regard.lessons import reverse\n\n"
        "sizes = reverse.TRAIN_SIZE, reverse.TEST_SIZE, reverse.TIMESTEPS, reverse.FEATURES\n"
        f"data = reverse.create_dataset(*sizes, seed={story.seed})\n"
        f"model = reverse.new_model(data, score='dot', seed={story.seed})\n"
        f"for epoch in reverse.train_reverse(model, data, epochs=reverse.EPOCHS, seed={story.seed}):\n"
        "    pass\n"
        "print(reverse.measure(model, data).attention[0])",
    )


def _deck_row() -> tuple[str, ...]:
    return ("the deck, without attention", *(f"{figure:.3f}" for figure in DECK.values()), "-", "-")


def _row(run: Run) -> tuple[str, ...]:
    train, test = run.measures.train, run.measures.test
    accuracies = train.token_accuracy, test.token_accuracy, test.sequence_accuracy
    return (run.name, *(f"{figure:.3f}" for figure in accuracies), str(run.epochs))


def _examples(plain: Run, attending: Run, data: Dataset) -> list[Example]:
    """The first test sequence, and the first that the model without attention gets wrong, if there is one."""
    targets = data.y_test.argmax(-1)
    wrong = (plain.measures.answers != targets).any(-1).nonzero().flatten().tolist()
    chosen = [(0, "which neither model saw in training")]
    if wrong and wrong[0] != 0:
        chosen.append((wrong[0], f"which the model {plain.name} gets wrong"))
    examples = []
    for number, reason in chosen:
        target: list[int] = targets[number].tolist()
        answers = []
        for run in (plain, attending):
            answer: list[int] = run.measures.answers[number].tolist()
            answers.append((run.name, _said(answer), "right" if answer == target else "wrong"))
        examples.append(Example(_said(target[::-1]), reason, _said(target), answers))
    return examples


def _said(digits: Sequence[int]) -> str:
    return " ".join(str(digit) for digit in digits)


def _ordinal(place: int) -> str:
    return f"{place}{'th' if 10 <= place % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(place % 10, 'th')}"
