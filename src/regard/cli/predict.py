"""`regard predict`: what a tuned model says of new input, one JSON object a line."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    MAX_LINE,
    ColumnsOption,
    DelimiterOption,
    DeviceOption,
    HeaderOption,
    MaxLineOption,
    QuotedOption,
    ThresholdOption,
)
from regard.cli.output import json_line, note, progress
from regard.data.files import STANDARD_INPUT
from regard.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from regard.data.examples import Example
    from regard.data.readers import TableOptions
    from regard.tasks.task import Prediction
    from regard.tasks.task_folder import FineTunedModel

__all__ = ["register"]

SHOWN = 50  # examples on a page


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
    page: Annotated[
        str | None,
        typer.Option(
            "--page",
            metavar="FILE.html",
            help=f"Also write a page of the first {SHOWN}, with attention and attributions.",
        ),
    ] = None,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
) -> None:
    """Let a tuned model do its task on new input: labels, entities or answers, one JSON object a line.

    Classes and tags take a text a line, or TSV, CSV and JSONL; pairs take columns or the keys text_a and text_b;
    questions the columns or keys question and context, or SQuAD's JSON; choices what `regard train choose` reads,
    with or without the label. --columns names other columns or keys, without that of the label. --page writes a file
    for the browser, which needs no network.
    """
    from regard.data.readers import TableOptions
    from regard.device import choose_device
    from regard.files.disk import replace_file
    from regard.tasks.predict import CHUNK_SIZE, predict_stream
    from regard.tasks.read_examples import new_examples
    from regard.tasks.task_folder import describe_compute, load_fine_tuned

    if page is not None:
        _check(page)
    kept: list[tuple[Example, Prediction]] = []
    count = 0
    with ExitStack() as stack:
        # Whether it can be written is known before the work.
        file = None if page is None else stack.enter_context(replace_file(page))
        place = choose_device(device)
        table = TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted)
        solved = load_fine_tuned(folder, device=place).with_threshold(threshold)
        note(describe_compute(solved, place))
        waiting: list[Example] = []
        examples = _noticed(new_examples(solved.task.name, source, table=table), waiting, at_most=SHOWN if page else 0)
        piped = source == STANDARD_INPUT  # whoever sends a line may wait for the answer before the next
        with ExitStack() as shown:
            # Lines that are printed on the terminal are progress enough, and would be drawn over by a bar.
            bar = None if sys.stdout.isatty() else shown.enter_context(progress("predicting", unit="examples"))
            for prediction in predict_stream(solved, examples, device=place, chunk_size=1 if piped else CHUNK_SIZE):
                if count < len(waiting):
                    kept.append((waiting[count], prediction))
                count += 1
                print(json_line(prediction), flush=piped)
                if bar is not None:
                    bar(1)
        if file is not None:
            given = None if piped else source
            _write(file, folder, solved, kept, count=count, source=given, table=table, threshold=threshold)
    if page is not None:
        note(f"{page}: {len(kept):,} of {count:,} examples")


def _check(page: str) -> None:
    """Refuse before the work what cannot be written after it."""
    from regard.render import bundle

    if not page.lower().endswith((".html", ".htm")):
        raise InputError(f"--page is {page!r}; expected a name that ends in .html")
    if not bundle.is_built():
        bundle.page({})  # says what to run


def _noticed(examples: Iterable[Example], noticed: list[Example], *, at_most: int) -> Iterator[Example]:
    """The same examples, the first of them also in a list."""
    for example in examples:
        if len(noticed) < at_most:
            noticed.append(example)
        yield example


def _write(
    file: Path,
    folder: str,
    solved: FineTunedModel,
    kept: list[tuple[Example, Prediction]],
    *,
    count: int,
    source: str | None,
    table: TableOptions,
    threshold: float | None,
) -> None:
    from regard.interpret.attribution.predictions import predictions_payload
    from regard.render.bundle import page

    notes = [f"The first {len(kept):,} of {count:,} examples are shown."] if len(kept) < count else []
    with progress("looking inside", total=len(kept), unit="examples") as bar:
        payload = predictions_payload(
            folder,
            solved,
            [example for example, _ in kept],
            [prediction for _, prediction in kept],
            source=source,
            table=table,
            threshold=threshold,
            notes=notes,
            on_done=lambda: bar(1),
        )
    file.write_text(page(payload, title=f"Regard: {solved.task.name}"), encoding="utf-8")
