"""`regard evaluate`: how well a tuned model does its task on labeled examples."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import (
    MAX_LINE,
    ColumnsOption,
    DelimiterOption,
    DeviceOption,
    HeaderOption,
    JsonOption,
    MaxLineOption,
    QuotedOption,
    ThresholdOption,
)
from regard.cli.output import note, print_json
from regard.wording import count_of

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)


def evaluate(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What `regard train` wrote.")],
    data: Annotated[str, typer.Option("--data", metavar="FILE", help="Labelled examples.")],
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    quoted: QuotedOption = None,
    threshold: ThresholdOption = None,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Score a tuned model on labeled examples, in percent."""
    from regard.data.readers import TableOptions
    from regard.training.finetuning.evaluate import evaluate

    table = TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted)
    found = evaluate(
        folder, data, table=table, threshold=threshold, device=device, on_event=lambda event: note(event.line() or "")
    )
    if as_json:
        print_json({"task": found.task, "n": found.count, "metrics": found.metrics})
        return
    print(f"{found.task}, {count_of(found.count, 'example')}")
    for name, value in found.metrics.items():
        print(f"{name:<20}{value:6.2f}")
