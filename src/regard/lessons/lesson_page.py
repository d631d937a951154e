"""The results of the lessons as text, tables and pages."""

from __future__ import annotations

from collections.abc import Sequence

from regard.lessons.reverse_comparison import ReverseComparison, ReverseConfig, ReverseRun
from regard.lessons.six_words import TARGET_WORDS, SixWordsLesson, SixWordsPair, SixWordsStep
from regard.lessons.tour import DECK, RECIPES
from regard.render.page import Block, check_weights, figures, heat_map, line_chart, page, paragraph, section, table
from regard.render.terminal import shade

Rows = list[tuple[str, ...]]
ALIGNMENT_NOTE = (
    '"Aligned" is the percentage of test steps whose largest attention weight is on the digit to write, the '
    "anti-diagonal. Attention to a digit does not prove that the model uses it."
)
LOSS_NOTE = (
    "The loss is cross-entropy, -log of the probability of the correct word, summed over the seven outputs of both "
    "sentences. In training the decoder reads the correct previous words (teacher forcing); its first input is <eos>."
)


def reverse_task(config: ReverseConfig) -> str:
    """The task and the models."""
    return (
        f"The task: read {config.steps} digits from 0 to {config.features - 1} and write them backwards. One LSTM "
        "encodes them, another decodes. Without attention the decoder sees only the last encoder state, however long "
        "the sequence is; with it, every step can attend to each digit. All models are trained on the same "
        f"{config.train_size:,} sequences and are tested on {config.test_size:,} others."
    )


def config_text(config: ReverseConfig) -> str:
    """The configuration in words, and what the scores of the deck count."""
    clip = f", gradients clipped to norm {config.max_grad_norm:g}" if config.max_grad_norm else ""
    return (
        f"Every model has {config.units} units and is trained with Adam at learning rate {config.learning_rate:g}, "
        f"batches of {config.batch_size}{clip}, for at most {config.epochs} epochs or until "
        f"{config.target_accuracy:g}% of the training digits are correct. The first input of the decoder is zeros, "
        f"each later one its own last output. Seed {config.seed}. "
        f"luong: {RECIPES['luong']}; deck: {RECIPES['deck']}. "
        "The scores of the deck (4 digits of 10, 16 units, 2,000 sequences) count digits: 98.125% is 785 of 800, and "
        "no such percentage of 200 sequences exists."
    )


def reverse_rows(comparison: ReverseComparison) -> tuple[tuple[str, ...], Rows]:
    """The table of the runs, after the scores of the deck."""
    headers = ("token accuracy, percent", "train", "test", "sequence accuracy", "aligned", "epochs")
    deck = ("the deck, no attention", *(f"{figure:.3f}" for figure in DECK.values()), "-", "-", "-")
    return headers, [deck, *(_run_row(run) for run in comparison.runs)]


def length_rows(comparison: ReverseComparison) -> tuple[tuple[str, ...], Rows]:
    """Test token accuracy without attention and with Luong's dot attention, at each length."""
    headers = ("digits to reverse", *(run.task.name for run in comparison.lengths[0][1:]))
    rows = [(str(length), *(f"{run.test.token_accuracy:.3f}" for run in runs)) for length, *runs in comparison.lengths]
    return headers, rows


def shaded(weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """A matrix for the terminal as shades without numbers, half as wide as its heat map."""
    check_weights(weights, rows=rows, columns=columns)
    wide, side = max(len(name) for name in columns) + 1, max(len(name) for name in rows)
    lines = [" " * side + "".join(f"{name:>{wide}}" for name in columns)]
    for name, row in zip(rows, weights, strict=True):
        shades = [shade(weight) for weight in row]
        lines.append(f"{name:>{side}}" + "".join(f"{one * (wide - 1):>{wide}}" for one in shades))
    return lines


def reverse_page(comparison: ReverseComparison) -> str:
    """The comparison as one page."""
    config = comparison.config
    positions = [str(position) for position in range(1, config.steps + 1)]
    where = heat_map(
        [[percent / 100 for percent in run.accuracy_by_position] for run in comparison.runs],
        rows=[run.task.name for run in comparison.runs],
        columns=positions,
        title="Accuracy at each position of the output",
        row_title="model",
        column_title="position",
    )
    return page(
        "The bottleneck, and attention as its cure",
        [
            paragraph(reverse_task(config)),
            section("Accuracy", table(*reverse_rows(comparison)), paragraph(ALIGNMENT_NOTE)),
            section("Accuracy against length", *_length_parts(comparison)),
            section("Accuracy by position", where),
            section("Attention", *_matrices(comparison)),
            section("Outputs", _answers(comparison)),
            section("Method", paragraph(config_text(config))),
        ],
        cli=_reverse_line(comparison),
        python="from regard.lessons.reverse_comparison import ReverseConfig, collect_runs, plan_tasks, train_task\n\n"
        f"tasks = plan_tasks({config!r}, {[length for length, *_ in comparison.lengths]!r})\n"
        "comparison = collect_runs([train_task(task) for task in tasks])",
    )


def _reverse_line(comparison: ReverseComparison) -> str:
    config = comparison.config
    options = {
        "steps": config.steps,
        "features": config.features,
        "units": config.units,
        "train-size": config.train_size,
        "test-size": config.test_size,
        "epochs": config.epochs,
        "batch-size": config.batch_size,
        "learning-rate": f"{config.learning_rate:g}",
        "max-grad-norm": f"{config.max_grad_norm:g}",
        "lengths": ",".join(str(length) for length, *_ in comparison.lengths),
        "seed": config.seed,
    }
    given = " ".join(f"--{name} {value}" for name, value in options.items())
    return f"regard lesson reverse {given} --output page.html"


def _run_row(run: ReverseRun) -> tuple[str, ...]:
    aligned = "-" if run.alignment_accuracy is None else f"{run.alignment_accuracy:.3f}"
    accuracies = run.train.token_accuracy, run.test.token_accuracy, run.test.sequence_accuracy
    return (run.task.name, *(f"{figure:.3f}" for figure in accuracies), aligned, str(run.epochs))


def _length_parts(comparison: ReverseComparison) -> list[Block]:
    if len(comparison.lengths) < 2:
        return [table(*length_rows(comparison))]
    _, plain, attending = zip(*comparison.lengths, strict=True)
    lines = [(runs[0].task.name, [run.test.token_accuracy for run in runs]) for runs in (plain, attending)]
    text = "Two models are trained per length, with the same number of sequences, units and epochs."
    chart = line_chart(
        lines,
        at=[length for length, *_ in comparison.lengths],
        title="Test accuracy, percent",
        across="digits to reverse",
        up="percent per token",
    )
    return [chart, table(*length_rows(comparison)), paragraph(text)]


def _matrices(comparison: ReverseComparison) -> list[Block]:
    """Every run with attention on one sequence, and the mean of the best one over the test set."""
    maps = [
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
    positions = [str(position) for position in range(1, comparison.config.steps + 1)]
    mean = heat_map(
        best.mean_matrix,
        rows=positions,
        columns=positions,
        title=f"{best.task.name}: mean over the test set, by position",
        row_title="written",
        column_title="read",
    )
    text = "One test sequence: rows are the output digits, columns the input digits."
    return [paragraph(text), figures(*maps), figures(mean)]


def _answers(comparison: ReverseComparison) -> Block:
    read = comparison.runs[0].read
    target = read[::-1]
    rows: Rows = [("read", _join(read), ""), ("target", _join(target), "")]
    for run in comparison.runs:
        rows.append((run.task.name, _join(run.written), "correct" if run.written == target else "wrong"))
    return table(("", "one test sequence", ""), rows)


def six_words_page(lesson: SixWordsLesson, *, epochs: int, seed: int) -> str:
    """The six-word lesson as one page."""
    parts = [
        paragraph("A Transformer with an output vocabulary of six words learns two translations."),
        _losses(lesson),
    ]
    for pair in lesson.pairs:
        headers = ("output", "target", *TARGET_WORDS)
        parts.append(
            section(
                f"{pair.source} → {' '.join(pair.target)}",
                table(headers, probability_rows(pair, pair.before), caption="Probabilities before training"),
                table(headers, probability_rows(pair, pair.after), caption="Probabilities after training"),
                figures(_word_map(pair, pair.before, "before"), _word_map(pair, pair.after, "after")),
                table(
                    ("step", "words so far", *TARGET_WORDS, "chosen"),
                    decoding_rows(pair.decoding),
                    caption="Decoding after training: every chosen word is an input of the next step",
                ),
            )
        )
    return page(
        "Six words, two translations",
        [*parts, section("Method", paragraph(LOSS_NOTE))],
        cli=f"regard lesson six-words --epochs {epochs} --seed {seed} --output page.html",
        python="from regard.lessons.six_words import train_six_words\n\n"
        f"lesson = train_six_words(epochs={epochs}, seed={seed})",
    )


def probability_rows(pair: SixWordsPair, probabilities: Sequence[Sequence[float]]) -> Rows:
    """One row per output: its number, the target, and the probability of each of the six words."""
    return [
        (f"#{number}", word, *(f"{p:.3f}" for p in row))
        for number, (word, row) in enumerate(zip(pair.target, probabilities, strict=True), start=1)
    ]


def decoding_rows(steps: Sequence[SixWordsStep]) -> Rows:
    """One row per decoding step: the words so far, the probabilities, and the chosen word."""
    return [
        (str(number), " ".join(step.prefix), *(f"{p:.3f}" for p in step.probabilities), step.chosen)
        for number, step in enumerate(steps, start=1)
    ]


def _losses(lesson: SixWordsLesson) -> Block:
    last = len(lesson.losses) - 1
    epochs = sorted({round(last * part / 6) for part in range(7)})
    rows = [(str(epoch), f"{lesson.losses[epoch]:.4f}") for epoch in epochs]
    return section("The loss falls", table(("epochs", "summed cross-entropy"), rows))


def _word_map(pair: SixWordsPair, probabilities: Sequence[Sequence[float]], when: str) -> Block:
    return heat_map(
        probabilities,
        rows=pair.target,
        columns=TARGET_WORDS,
        title=f"{when} training",
        row_title="right",
        column_title="word",
    )


def _join(digits: Sequence[int]) -> str:
    return " ".join(str(digit) for digit in digits)
