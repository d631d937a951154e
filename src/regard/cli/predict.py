"""`regard predict`: what a tuned model says of new input, one JSON object a line."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from regard.cli.options import (
    ColumnsOption,
    DelimiterOption,
    DeviceOption,
    HeaderOption,
    QuotedOption,
    ThresholdOption,
)
from regard.cli.output import note, progress
from regard.data.files import STANDARD_INPUT

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What `regard train` wrote.")],
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="A file, - for standard input, or a text of several words.")
    ],
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    quoted: QuotedOption = None,
    threshold: ThresholdOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Let a tuned model do its task on new input: labels, entities or answers, one JSON object a line.

    Classes and tags take a text a line, or TSV, CSV and JSONL; pairs take columns or the keys text_a and text_b;
    questions the columns or keys question and context, or SQuAD's JSON; choices what `regard train choose` reads,
    with or without the label. --columns names other columns or keys, without that of the label.
    """
    from regard.device import choose
    from regard.finetune.sources import Table, new_examples
    from regard.tasks.folder import computing, read_task
    from regard.tasks.solve import AT_ONCE, stream

    place = choose(device)
    table = Table.said(columns, header=header, delimiter=delimiter, quoting=quoted)
    solved = read_task(folder, device=place).with_threshold(threshold)
    note(computing(solved, place))
    examples = new_examples(solved.task.name, source, table=table)
    piped = source == STANDARD_INPUT  # whoever sends a line may wait for the answer before the next
    with ExitStack() as stack:
        # Lines that are printed on the terminal are progress enough, and would be drawn over by a bar.
        bar = None if sys.stdout.isatty() else stack.enter_context(progress("predicting", unit="examples"))
        for prediction in stream(solved, examples, device=place, at_once=1 if piped else AT_ONCE):
            line = json.dumps(prediction, ensure_ascii=False)
            print(line.encode("utf-8", "backslashreplace").decode("utf-8"), flush=piped)
            if bar is not None:
                bar(1)
