"""`regard doctor`: look for ten common mistakes with a model and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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
)
from regard.cli.output import note, print_json
from regard.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.training.doctor import DoctorFinding

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    model: Annotated[
        str, typer.Argument(metavar="DIR|MODEL", help="What `regard train` wrote, or a model to be tuned.")
    ],
    data: Annotated[str, typer.Option("--data", metavar="FILE", help="Labelled examples that it is judged on.")],
    train: Annotated[
        str | None, typer.Option("--train", metavar="FILE", help="Labelled examples that it learns from.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="What a MODEL is meant for: pair, tag, ... Default: classify."),
    ] = None,
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    quoted: QuotedOption = None,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Look for ten common mistakes with a model and its data.

    A missing mask, wrong segment ids, a casing mismatch, labels truncated away, train/dev leakage, dropout left on,
    constant predictions, class imbalance, label noise by duplicates, wrong columns; of pictures, those that
    they can have and wrong sizes. Exits with 1 where one is sure.
    """
    from regard.data.readers import TableOptions
    from regard.device import choose_device
    from regard.tasks.read_examples import read_examples
    from regard.training.doctor import examine, load_examined_model

    place = choose_device(device)
    subject = load_examined_model(model, device=place)
    name = subject.task(task)
    table = TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted)
    reads = {}
    for what, path in (("data", data), ("train", train)):
        if path is not None:
            read = reads[what] = read_examples(name, path, table=table, labeled=True)
            note(f"{what}: {count_of(len(read.examples), 'example')} of {read.path} ({read.description})")
    found = examine(subject, reads["data"], train=reads.get("train"), task=name, device=place)
    if as_json:
        from dataclasses import asdict

        print_json([asdict(finding) for finding in found])
    else:
        for line in _lines(found):
            print(line)
    if any(finding.status == "error" for finding in found):
        raise typer.Exit(1)


def _lines(found: Sequence[DoctorFinding]) -> list[str]:
    from regard.training.doctor import problems, worst_first

    width = max(len(finding.check) for finding in found)
    lines = []
    for finding in worst_first(found):
        remedy = f". To mend it: {finding.remedy}" if finding.remedy else ""
        lines.append(f"{finding.status:<7}  {finding.check:<{width}}  {finding.evidence}{remedy}")
    measured = sum(finding.status != "skipped" for finding in found)
    return lines if problems(found) else [*lines, f"no problem found in {measured} checks"]
