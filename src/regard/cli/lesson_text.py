"""What `regard lesson` prints: the lessons' results as text for a terminal and as documents.

Knows the lessons' results. Knows nothing of options or training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.lessons.compare import Comparison, Run
    from regard.lessons.six_words import Lesson

__all__ = ["print_reverse", "print_six_words", "reverse_document"]

LINE = 96
FEW = 12  # columns of a matrix up to which a line has room for its numbers


def print_reverse(comparison: Comparison, output: Path | None) -> None:
    """The tables, the curve in numbers and where the best attention looks."""
    from textwrap import fill

    from regard.cli.output import console
    from regard.lessons import lesson_page as view
    from regard.render.terminal import terminal_heat_map

    print(fill(view.reverse_task(comparison.setting), LINE) + "\n")
    _print_table(*view.reverse_rows(comparison))
    print("\nTest accuracy per token against length; at each length both models are trained anew:\n")
    _print_table(*view.length_rows(comparison))
    best = comparison.best
    assert best.matrix is not None
    few = len(best.read) <= FEW
    unit = ", in percent" if few else ""
    print(f"\nWhere {best.task.name} looks{unit}; across what it reads, down what it writes:\n")
    rows, columns = [f"  {digit}" for digit in best.written], [str(digit) for digit in best.read]
    if few:
        console().print(terminal_heat_map(best.matrix, rows, columns))
    else:
        print("\n".join(view.shaded(best.matrix, rows, columns)))
    print("\n" + fill(view.ALIGNED, LINE) + "\n\n" + fill(view.setting_text(comparison.setting), LINE))
    _print_page(output)


def print_six_words(learned: Lesson, output: Path | None) -> None:
    """The probabilities before and after training, the loss, and every decoding step."""
    from textwrap import fill

    from regard.lessons import lesson_page as view
    from regard.lessons.six_words import WORDS

    for pair in learned.pairs:
        for when, probabilities in (("before", pair.before), ("after", pair.after)):
            print(f"{pair.source} → {' '.join(pair.target)}: probabilities {when} training\n")
            _print_table(("output", "right word", *WORDS), view.probability_rows(pair, probabilities))
            print()
    last = len(learned.losses) - 1
    print(f"Summed cross-entropy: {learned.losses[0]:.4f} before, {learned.losses[-1]:.4f} after {last} epochs\n")
    for pair in learned.pairs:
        print(f"Decoding {pair.source!r}: every chosen word is heard in the next step\n")
        _print_table(("step", "said so far", *WORDS, "chosen"), view.decoding_rows(pair.decoding))
        print()
    print(fill(view.SUMMED, LINE))
    _print_page(output)


def _print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for first, *others in (headers, *rows):
        cells = "".join(f"  {text:>{width}}" for text, width in zip(others, widths[1:], strict=True))
        print(f"  {first:<{widths[0]}}{cells}")


def _print_page(output: Path | None) -> None:
    if output is None:
        print("\nAdd --output page.html for a page with all of it.")
    else:
        print(f"\nPage written to {output}; open it in a browser, it needs no network.")


def reverse_document(comparison: Comparison, output: Path | None) -> dict[str, Any]:
    """What --json prints; `recipe` is null without attention."""
    from dataclasses import asdict

    from regard.lessons.tour import DECK

    return {
        "setting": asdict(comparison.setting),
        "deck": DECK,
        "runs": [_run_document(run) for run in comparison.runs],
        "lengths": [
            {"steps": length, "runs": [_run_document(run) for run in runs]} for length, *runs in comparison.lengths
        ],
        "page": None if output is None else str(output),
    }


def _run_document(run: Run) -> dict[str, Any]:
    return {
        "score": run.task.score,
        "recipe": None if run.task.score == "none" else run.task.recipe,
        "train_token_accuracy": run.train.token_accuracy,
        "test_token_accuracy": run.test.token_accuracy,
        "test_sequence_accuracy": run.test.sequence_accuracy,
        "alignment_accuracy": run.alignment_accuracy,
        "epochs": run.epochs,
        "seconds": round(run.seconds, 3),
        "token_accuracy_by_place": run.by_place,
        "read": run.read,
        "written": run.written,
        "weights": run.matrix,
    }
