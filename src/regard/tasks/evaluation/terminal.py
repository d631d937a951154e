"""The report of an evaluation for the terminal: compact tables that are legible without color."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from regard.escaping import escape_controls
from regard.tasks.evaluation.parts import Calibration, NoAnswerCurve, ThresholdCurve, with_interval
from regard.tasks.evaluation.result import EvaluationResult, ExampleError
from regard.wording import count_of

MAX_MATRIX = 12  # classes of a confusion matrix that is printed
MAX_ROWS = 30  # classes whose scores are printed
MAX_LABEL = 24  # characters of a label
WIDTH = 100  # characters of a line of text
UNITS = ("mae", "rmse")  # metrics that are not in percent


def report(result: EvaluationResult) -> str:
    """All parts of the evaluation that apply to its task, separated by blank lines."""
    parts = [
        [result.finding, *result.remarks],
        _metrics(result),
        _classes(result),
        _confusion(result),
        *([_thresholds(result.thresholds)] if result.thresholds else []),
        *([_calibration(result.calibration)] if result.calibration else []),
        _schemes(result),
        *_groups(result),
        *([_no_answer(result.no_answer)] if result.no_answer else []),
        _residuals(result),
        _errors(result),
    ]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table whose first column is left-aligned."""
    lines = [[_shortened(cell, MAX_LABEL) for cell in row] for row in (headers, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        cells = "".join(
            f"  {' ' * (width - cell_len(cell))}{cell}" for cell, width in zip(others, widths[1:], strict=True)
        )
        yield f"  {first}{' ' * (widths[0] - cell_len(first))}{cells}".rstrip()


def _metrics(result: EvaluationResult) -> Iterator[str]:
    source = f" of {escape_controls(result._data)}" if result._data else ""
    yield f"{result.task}, {count_of(result.n, 'example')}{source}; 95% intervals in brackets"
    for name, value in result.metrics.items():
        interval = result.intervals.get(name)
        text = with_interval(value, interval)
        if name in UNITS:
            text = f"{value:.4g}" + (f" [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else "")
        of = f" of {escape_controls(result.positive)}" if name == "f1" and result.positive else ""
        yield f"  {name + of:<22}{text}"


def _classes(result: EvaluationResult) -> Iterator[str]:
    if not result.classes:
        return
    listed = result.classes
    if len(listed) > MAX_ROWS:
        listed = sorted(listed, key=lambda one: one.f1)[:MAX_ROWS]
        yield f"the {MAX_ROWS} of {len(result.classes):,} labels with the lowest F1"
    rows = [
        [one.label, *(f"{value:.1f}" for value in (one.precision, one.recall, one.f1)), f"{one.support:,}"]
        for one in listed
    ]
    yield from table(["label", "precision", "recall", "f1", "support"], rows)


def _confusion(result: EvaluationResult) -> Iterator[str]:
    matrix = result.confusion_matrix
    if matrix is not None and len(matrix.columns) <= MAX_MATRIX:
        yield "confusion matrix: true labels are rows, predicted ones columns"
        columns = [_shortened(name, 12) for name in matrix.columns]
        rows = [[name, *map("{:,}".format, counts)] for name, counts in zip(matrix.rows, matrix.counts, strict=True)]
        yield from table(["", *columns], rows)
    elif result.confusions:
        yield "most frequent confusions"
        rows = [[one.label, one.predicted, f"{one.count:,}"] for one in result.confusions]
        yield from table(["true", "predicted", "count"], rows)


def _thresholds(curves: Sequence[ThresholdCurve]) -> Iterator[str]:
    yield "threshold of the probability with the best F1"
    rows = [
        [
            curve.label,
            f"{curve.best_threshold:.3f}",
            f"{curve.best_f1:.1f}",
            *("-" if value is None else f"{value:.1f}" for value in (curve.roc_auc, curve.average_precision)),
        ]
        for curve in curves[:MAX_ROWS]
    ]
    yield from table(["label", "threshold", "f1", "ROC AUC", "average precision"], rows)


def _calibration(calibration: Calibration) -> Iterator[str]:
    yield (
        f"calibration of the probability of {escape_controls(calibration.of)}: ECE {calibration.ece:.1f}, "
        f"Brier {calibration.brier:.4f}, log loss {calibration.log_loss:.4f}"
    )
    rows = [
        [
            f"{100 * one.low:.0f} to {100 * one.high:.0f}%",
            f"{one.count:,}",
            f"{100 * (one.confidence or 0):.1f}",
            f"{100 * (one.accuracy or 0):.1f}",
        ]
        for one in calibration.bins
        if one.count
    ]
    yield from table(["probability", "count", "mean", "true"], rows)


def _schemes(result: EvaluationResult) -> Iterator[str]:
    if result.schemes:
        yield "by scheme: strict (type and ends), exact (ends), partial (overlap counts half), type (any overlap)"
        rows = [
            [
                one.scheme,
                *(f"{value:.1f}" for value in (one.precision, one.recall, one.f1)),
                *(f"{count:,}" for count in (one.correct, one.incorrect, one.partial, one.missed, one.spurious)),
            ]
            for one in result.schemes
        ]
        headers = ["scheme", "precision", "recall", "f1", "correct", "incorrect", "partial", "missed", "spurious"]
        yield from table(headers, rows)


def _groups(result: EvaluationResult) -> Iterator[Iterator[str]]:
    for by in dict.fromkeys(group.by for group in result.groups):
        rows = [
            [one.group, f"{one.n:,}", f"{one.exact_match:.1f}", with_interval(one.f1, one.f1_interval)]
            for one in result.groups
            if one.by == by
        ]
        yield table([by, "count", "exact match", "f1"], rows)


def _no_answer(curve: NoAnswerCurve) -> Iterator[str]:
    yield (
        f"threshold for no answer: {curve.threshold:.2f}; the best F1 on these questions is {curve.best_f1:.1f}, at "
        f"{curve.best_threshold:.2f}"
    )


def _residuals(result: EvaluationResult) -> Iterator[str]:
    if result.residuals is not None:
        yield "predicted minus true value"
        quantiles = result.residuals.quantiles
        names = ["mean", *(f"{100 * float(level):g}%" for level in quantiles)]
        values = [result.residuals.mean, *quantiles.values()]
        yield from table(["", *names], [["residual", *(f"{value:+.3g}" for value in values)]])


def _errors(result: EvaluationResult) -> Iterator[str]:
    if not result.errors:
        return
    more = "; --errors FILE.csv writes all of them" if len(result.errors) < result.num_errors else ""
    if result.residuals is not None:
        yield f"the largest differences{more}"
    else:
        yield f"the worst of {count_of(result.num_errors, 'error')}{more}"
    for error in result.errors:
        where = f"row {error.row:,}" if error.line is None else f"line {error.line:,}"
        yield f"  {where}: {_verdict(error)}"
        for text in error.texts.values():
            yield f"    {_shortened(' '.join(text.split()), WIDTH - 4)}"


def _verdict(error: ExampleError) -> str:
    """predicted spam (98.2%), true ham (1.8%)"""
    parts = []
    for word, value, probability in (
        ("predicted", error.predicted, error.confidence),
        ("true", error.label, error.probability),
    ):
        text = f"{value:.4g}" if isinstance(value, float) else ", ".join(value) if isinstance(value, list) else value
        percent = "" if probability is None else f" ({100 * probability:.1f}%)"
        parts.append(f"{word} {escape_controls(text) or 'nothing'}{percent}")
    return ", ".join([*parts, *([error.kind] if error.kind else [])])


def _shortened(text: str, width: int) -> str:
    text = escape_controls(text)
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"
