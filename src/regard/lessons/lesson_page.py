"""What the lessons have to tell, in words, tables and as pages.

Knows the lessons' results and how to explain them. Knows nothing of the terminal or of files.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.lessons.compare import Comparison, Run, Setting
from regard.lessons.six_words import WORDS, Decoding, Lesson, Pair
from regard.lessons.tour import DECK, RECIPES
from regard.render.page import Block, check_weights, figures, heat_map, line_chart, page, paragraph, section, table
from regard.render.terminal import shade

__all__ = [
    "SUMMED",
    "decoding_rows",
    "length_rows",
    "probability_rows",
    "reverse_page",
    "reverse_rows",
    "reverse_task",
    "setting_text",
    "shaded",
    "six_words_page",
]

Rows = list[tuple[str, ...]]
ALIGNED = (
    '"Looks right" is the share of the steps of the test in which the strongest look is on the digit to be written, '
    "the anti-diagonal. That a model looks there does not yet prove that it uses what it finds."
)
SUMMED = (
    "The loss is cross-entropy, -log of the probability of the right word, summed over the seven outputs of both "
    "sentences. While it learns, each output is told the right words before it; <eos> is also what the decoder hears "
    "first."
)


def reverse_task(setting: Setting) -> str:
    """What is to be learned, and by what."""
    return (
        f"The task: read {setting.steps} digits from 0 to {setting.features - 1} and write them backwards. One LSTM "
        "reads, another writes. Without attention all the writer knows is the reader's last state, however long the "
        "sequence was; with it, every step can look back at each digit. All models learn from the same "
        f"{setting.train_size:,} sequences and are tested on {setting.test_size:,} others."
    )


def setting_text(setting: Setting) -> str:
    """The budget in words, the deck's figures and what they count."""
    clip = f", gradients cut to {setting.clip:g}" if setting.clip else ""
    return (
        f"Every model has {setting.units} units and learns with Adam at {setting.learning_rate:g}, batches of "
        f"{setting.batch_size}{clip}, until {setting.enough:g}% of the training digits are right, but {setting.epochs} "
        "epochs at most. The "
        f"writer hears only itself: first zeros, then its own last output. Seed {setting.seed}. "
        f"luong: {RECIPES['luong']}; deck: {RECIPES['deck']}. "
        "The deck's figures (4 digits of 10, 16 units, 2,000 sequences) count digits: 98.125% is 785 of 800, and there "
        "is no such percentage of 200 sequences."
    )


def reverse_rows(comparison: Comparison) -> tuple[tuple[str, ...], Rows]:
    """The table of the runs, the deck's first."""
    headers = ("right digits, percent per token", "train", "test", "whole sequences", "looks right", "epochs")
    deck = ("the deck, no attention", *(f"{figure:.3f}" for figure in DECK.values()), "-", "-", "-")
    return headers, [deck, *(_run_row(run) for run in comparison.runs)]


def length_rows(comparison: Comparison) -> tuple[tuple[str, ...], Rows]:
    """Test accuracy per token of no attention and of Luong's dot attention, at each length."""
    headers = ("digits to reverse", *(run.task.name for run in comparison.lengths[0][1:]))
    rows = [(str(length), *(f"{run.test.token_accuracy:.3f}" for run in runs)) for length, *runs in comparison.lengths]
    return headers, rows


def shaded(weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """A matrix for the terminal in lines half as wide as its heat map: shades and no numbers."""
    check_weights(weights, rows=rows, columns=columns)
    wide, side = max(len(name) for name in columns) + 1, max(len(name) for name in rows)
    lines = [" " * side + "".join(f"{name:>{wide}}" for name in columns)]
    for name, row in zip(rows, weights, strict=True):
        shades = [shade(weight) for weight in row]
        lines.append(f"{name:>{side}}" + "".join(f"{one * (wide - 1):>{wide}}" for one in shades))
    return lines


def reverse_page(comparison: Comparison) -> str:
    """The comparison as one page."""
    setting = comparison.setting
    places = [str(place) for place in range(1, setting.steps + 1)]
    where = heat_map(
        [[percent / 100 for percent in run.by_place] for run in comparison.runs],
        rows=[run.task.name for run in comparison.runs],
        columns=places,
        title="Right digits at each place of the answer",
        row_title="model",
        column_title="place",
    )
    return page(
        "The bottleneck, and attention as its cure",
        [
            paragraph(reverse_task(setting)),
            section("How well they do", table(*reverse_rows(comparison)), paragraph(ALIGNED)),
            section("Accuracy against length", *_length_parts(comparison)),
            section("Where in the answer", where),
            section("Where they look", *_matrices(comparison)),
            section("What they write", _answers(comparison)),
            section("How this was made", paragraph(setting_text(setting))),
        ],
        cli=_reverse_line(comparison),
        python="from regard.lessons.compare import Setting, gather, plan, train_task\n\n"
        f"tasks = plan({setting!r}, {[length for length, *_ in comparison.lengths]!r})\n"
        "comparison = gather([train_task(task) for task in tasks])",
    )


def _reverse_line(comparison: Comparison) -> str:
    setting = comparison.setting
    options = {
        "steps": setting.steps,
        "features": setting.features,
        "units": setting.units,
        "train-size": setting.train_size,
        "test-size": setting.test_size,
        "epochs": setting.epochs,
        "batch-size": setting.batch_size,
        "rate": f"{setting.learning_rate:g}",
        "clip": f"{setting.clip:g}",
        "lengths": ",".join(str(length) for length, *_ in comparison.lengths),
        "seed": setting.seed,
    }
    said = " ".join(f"--{name} {value}" for name, value in options.items())
    return f"regard lesson reverse {said} --output page.html"


def _run_row(run: Run) -> tuple[str, ...]:
    aligned = "-" if run.alignment_accuracy is None else f"{run.alignment_accuracy:.3f}"
    shares = run.train.token_accuracy, run.test.token_accuracy, run.test.sequence_accuracy
    return (run.task.name, *(f"{figure:.3f}" for figure in shares), aligned, str(run.epochs))


def _length_parts(comparison: Comparison) -> list[Block]:
    if len(comparison.lengths) < 2:
        return [table(*length_rows(comparison))]
    _, plain, attending = zip(*comparison.lengths, strict=True)
    lines = [(runs[0].task.name, [run.test.token_accuracy for run in runs]) for runs in (plain, attending)]
    text = "At each length two models are trained anew, with the same number of sequences, units and epochs."
    drawn = line_chart(
        lines,
        at=[length for length, *_ in comparison.lengths],
        title="Right digits of the test, percent",
        across="digits to reverse",
        up="percent per token",
    )
    return [drawn, table(*length_rows(comparison)), paragraph(text)]


def _matrices(comparison: Comparison) -> list[Block]:
    """Every attending run on one sequence, and the best one's mean over the test."""
    drawn = [
        heat_map(
            run.matrix,
            rows=[str(digit) for digit in run.written],
            columns=[str(digit) for digit in run.read],
            title=run.task.name,
            row_title="written",
            column_title="read",
        )
        for run in comparison.runs
        if run.matrix is not None
    ]
    best = comparison.best
    assert best.mean_matrix is not None
    places = [str(place) for place in range(1, comparison.setting.steps + 1)]
    mean = heat_map(
        best.mean_matrix,
        rows=places,
        columns=places,
        title=f"{best.task.name}: mean over the whole test, by place",
        row_title="written",
        column_title="read",
    )
    text = "One test sequence, which no model saw in training: down what is written, across what was read."
    return [paragraph(text), figures(*drawn), figures(mean)]


def _answers(comparison: Comparison) -> Block:
    read = comparison.runs[0].read
    right = read[::-1]
    rows: Rows = [("read", _said(read), ""), ("should become", _said(right), "")]
    for run in comparison.runs:
        rows.append((run.task.name, _said(run.written), "right" if run.written == right else "wrong"))
    return table(("", "one test sequence", ""), rows)


def six_words_page(lesson: Lesson, *, epochs: int, seed: int) -> str:
    """The lesson of six words as one page."""
    parts = [
        paragraph("A Transformer with an output vocabulary of six words learns two translations."),
        _losses(lesson),
    ]
    for pair in lesson.pairs:
        headers = ("output", "right word", *WORDS)
        parts.append(
            section(
                f"{pair.source} → {' '.join(pair.target)}",
                table(headers, probability_rows(pair, pair.before), caption="Probabilities before training"),
                table(headers, probability_rows(pair, pair.after), caption="Probabilities after training"),
                figures(_word_map(pair, pair.before, "before"), _word_map(pair, pair.after, "after")),
                table(
                    ("step", "said so far", *WORDS, "chosen"),
                    decoding_rows(pair.decoding),
                    caption="Decoding after training: every chosen word is heard in the next step",
                ),
            )
        )
    return page(
        "Six words, two translations",
        [*parts, section("How this was made", paragraph(SUMMED))],
        cli=f"regard lesson six-words --epochs {epochs} --seed {seed} --output page.html",
        python="from regard.lessons.six_words import learn_six_words\n\n"
        f"lesson = learn_six_words(epochs={epochs}, seed={seed})",
    )


def probability_rows(pair: Pair, probabilities: Sequence[Sequence[float]]) -> Rows:
    """One row for each output: its number, the right word, and the probability of each of the six."""
    return [
        (f"#{number}", word, *(f"{p:.3f}" for p in row))
        for number, (word, row) in enumerate(zip(pair.target, probabilities, strict=True), start=1)
    ]


def decoding_rows(steps: Sequence[Decoding]) -> Rows:
    """One row for each time step: what was heard so far, the probabilities, and the word chosen."""
    return [
        (str(number), " ".join(step.said), *(f"{p:.3f}" for p in step.probabilities), step.chosen)
        for number, step in enumerate(steps, start=1)
    ]


def _losses(lesson: Lesson) -> Block:
    last = len(lesson.losses) - 1
    shown = sorted({round(last * part / 6) for part in range(7)})
    rows = [(str(epoch), f"{lesson.losses[epoch]:.4f}") for epoch in shown]
    return section("The loss falls", table(("epochs", "summed cross-entropy"), rows))


def _word_map(pair: Pair, probabilities: Sequence[Sequence[float]], when: str) -> Block:
    return heat_map(
        probabilities, rows=pair.target, columns=WORDS, title=f"{when} training", row_title="right", column_title="word"
    )


def _said(digits: Sequence[int]) -> str:
    return " ".join(str(digit) for digit in digits)
