"""`regard predict`: the predictions of a fine-tuned model for new input, one JSON object per line."""

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
    from regard.tasks.fine_tuned_model import FineTunedModel
    from regard.tasks.task import Prediction

PAGE_EXAMPLES = 50


def register(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A model folder that `regard train` wrote.")],
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
            help=f"Also write a page with the first {PAGE_EXAMPLES} examples, with attention and attributions.",
        ),
    ] = None,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
) -> None:
    """Predict labels, entities or answers with a fine-tuned model; prints one JSON object per line.

    classify and tag read one text per line, or TSV, CSV and JSONL. pair reads two columns, or the keys text_a and
    text_b. answer reads the columns or keys question and context, or SQuAD's JSON. choose reads what
    `regard train choose` reads, with or without labels. --columns selects other columns or keys, without that of the
    label. --page writes an HTML file that works offline.
    """
    from regard.data.readers import TableOptions
    from regard.device import choose_device
    from regard.files.disk import replace_file
    from regard.tasks.fine_tuned_model import CHUNK_SIZE, describe_compute, load_fine_tuned, predict_stream
    from regard.tasks.registry import new_examples

    if page is not None:
        _check_page(page)
    page_items: list[tuple[Example, Prediction]] = []
    count = 0
    with ExitStack() as stack:
        # Opened first, so that a file that cannot be written is an error before the work.
        file = None if page is None else stack.enter_context(replace_file(page))
        torch_device = choose_device(device)
        table = TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted)
        fine_tuned = load_fine_tuned(folder, device=torch_device).with_threshold(threshold)
        note(describe_compute(fine_tuned, torch_device))
        first_examples: list[Example] = []
        examples = _copy_first(
            new_examples(fine_tuned.task.name, source, table=table), first_examples, limit=PAGE_EXAMPLES if page else 0
        )
        piped = source == STANDARD_INPUT  # the sender may wait for a prediction before it sends the next line
        with ExitStack() as progress_stack:
            # On a terminal the printed lines show the progress, and a bar would overwrite them.
            bar = None if sys.stdout.isatty() else progress_stack.enter_context(progress("predicting", unit="examples"))
            for prediction in predict_stream(
                fine_tuned, examples, device=torch_device, chunk_size=1 if piped else CHUNK_SIZE
            ):
                if count < len(first_examples):
                    page_items.append((first_examples[count], prediction))
                count += 1
                print(json_line(prediction), flush=piped)
                if bar is not None:
                    bar(1)
        if file is not None:
            _write_page(
                file,
                folder,
                fine_tuned,
                page_items,
                count=count,
                source=None if piped else source,
                table=table,
                threshold=threshold,
            )
    if page is not None:
        note(f"{page}: {len(page_items):,} of {count:,} examples")


def _check_page(page: str) -> None:
    """Raise InputError before the work if the page cannot be written."""
    from regard.render import bundle

    if not page.lower().endswith((".html", ".htm")):
        raise InputError(f"--page is {page!r}; expected a name that ends in .html")
    if not bundle.is_built():
        bundle.page({})  # raises an error with the command to run


def _copy_first(examples: Iterable[Example], first: list[Example], *, limit: int) -> Iterator[Example]:
    """Yield the examples and append the first `limit` of them to a list."""
    for example in examples:
        if len(first) < limit:
            first.append(example)
        yield example


def _write_page(
    file: Path,
    folder: str,
    fine_tuned: FineTunedModel,
    items: list[tuple[Example, Prediction]],
    *,
    count: int,
    source: str | None,
    table: TableOptions,
    threshold: float | None,
) -> None:
    from regard.interpret.attribution.predictions import predictions_payload
    from regard.render.bundle import page

    notes = [f"The first {len(items):,} of {count:,} examples are shown."] if len(items) < count else []
    with progress("attention and attributions", total=len(items), unit="examples") as bar:
        payload = predictions_payload(
            folder,
            fine_tuned,
            [example for example, _ in items],
            [prediction for _, prediction in items],
            source=source,
            table=table,
            threshold=threshold,
            notes=notes,
            on_done=lambda: bar(1),
        )
    file.write_text(page(payload, title=f"Regard: {fine_tuned.task.name}"), encoding="utf-8")
