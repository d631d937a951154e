"""The results of `regard lesson` as text for a terminal and as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.lessons.reverse_comparison import ReverseComparison, ReverseRun
    from regard.lessons.six_words import SixWordsLesson

LINE = 96
MAX_NUMBERED_COLUMNS = 12  # of a matrix that is printed with numbers


def print_reverse(comparison: ReverseComparison, output: Path | None) -> None:
    """Print the tables, the accuracy by length and the attention of the best run."""
    from textwrap import fill

    from regard.cli.output import console
    from regard.lessons import lesson_page as view
    from regard.render.terminal import terminal_heat_map

    print(fill(view.reverse_task(comparison.config), LINE) + "\n")
    _print_table(*view.reverse_rows(comparison))
    print("\nTest token accuracy by length; both models are trained for each length:\n")
    _print_table(*view.length_rows(comparison))
    best = comparison.best
    assert best.matrix is not None
    few = len(best.read) <= MAX_NUMBERED_COLUMNS
    unit = ", in percent" if few else ""
    print(f"\nAttention of {best.task.name}{unit}; columns are the input, rows the output:\n")
    rows, columns = [f"  {digit}" for digit in best.written], [str(digit) for digit in best.read]
    if few:
        console().print(terminal_heat_map(best.matrix, rows, columns))
    else:
        print("\n".join(view.shaded(best.matrix, rows, columns)))
    print("\n" + fill(view.ALIGNMENT_NOTE, LINE) + "\n\n" + fill(view.config_text(comparison.config), LINE))
    _print_page(output)


def print_six_words(learned: SixWordsLesson, output: Path | None) -> None:
    """Print the probabilities before and after training, the loss, and every decoding step."""
    from textwrap import fill

    from regard.lessons import lesson_page as view
    from regard.lessons.six_words import TARGET_WORDS

    for pair in learned.pairs:
        for when, probabilities in (("before", pair.before), ("after", pair.after)):
            print(f"{pair.source} → {' '.join(pair.target)}: probabilities {when} training\n")
            _print_table(("output", "target", *TARGET_WORDS), view.probability_rows(pair, probabilities))
            print()
    last = len(learned.losses) - 1
    print(f"Summed cross-entropy: {learned.losses[0]:.4f} before, {learned.losses[-1]:.4f} after {last} epochs\n")
    for pair in learned.pairs:
        print(f"Decoding {pair.source!r}: every chosen word is an input of the next step\n")
        _print_table(("step", "words so far", *TARGET_WORDS, "chosen"), view.decoding_rows(pair.decoding))
        print()
    print(fill(view.LOSS_NOTE, LINE))
    _print_page(output)


def _print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for first, *others in (headers, *rows):
        cells = "".join(f"  {text:>{width}}" for text, width in zip(others, widths[1:], strict=True))
        print(f"  {first:<{widths[0]}}{cells}")


def _print_page(output: Path | None) -> None:
    if output is None:
        print("\nAdd --output page.html for a page with all results.")
    else:
        print(f"\nPage written to {output}; open it in a browser, it needs no network.")


def reverse_document(comparison: ReverseComparison, output: Path | None) -> dict[str, Any]:
    """The document of --json; `recipe` is null without attention."""
    from dataclasses import asdict

    from regard.lessons.tour import DECK

    return {
        "setting": asdict(comparison.config),
        "deck": DECK,
        "runs": [_run_document(run) for run in comparison.runs],
        "lengths": [
            {"steps": length, "runs": [_run_document(run) for run in runs]} for length, *runs in comparison.lengths
        ],
        "page": None if output is None else str(output),
    }


def _run_document(run: ReverseRun) -> dict[str, Any]:
    return {
        "score": run.task.score,
        "recipe": None if run.task.score == "none" else run.task.recipe,
        "train_token_accuracy": run.train.token_accuracy,
        "test_token_accuracy": run.test.token_accuracy,
        "test_sequence_accuracy": run.test.sequence_accuracy,
        "alignment_accuracy": run.alignment_accuracy,
        "epochs": run.epochs,
        "seconds": round(run.seconds, 3),
        "token_accuracy_by_position": run.accuracy_by_position,
        "read": run.read,
        "written": run.written,
        "weights": run.matrix,
    }
