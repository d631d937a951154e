"""`regard layers`: which layer of a model is best for a task."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import (
    MAX_LINE,
    ColumnsOption,
    DelimiterOption,
    DeviceOption,
    HeaderOption,
    JsonOption,
    MaxLineOption,
    ModelOption,
    QuotedOption,
    SeedOption,
)
from regard.cli.output import note, print_json, stages
from regard.known import DEFAULT_MODEL
from regard.wording import count_of, truncation_note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.interpret.probes.layers import LayerReport, Row

__all__ = ["register"]

METRICS = {"f1": "F1 of entities", "accuracy": "accuracy"}


def register(app: typer.Typer) -> None:
    app.command("layers")(layers)


def layers(
    train: Annotated[str, typer.Option("--train", metavar="FILE", help="What the heads learn from.")],
    dev: Annotated[str, typer.Option("--dev", metavar="FILE", help="What they are scored on.")],
    model: ModelOption = DEFAULT_MODEL,
    task: Annotated[
        Literal["tag", "classify"],
        typer.Option("--task", help="Tag words (CoNLL columns or JSONL), or classify texts (TSV, CSV, JSONL)."),
    ] = "tag",
    head: Annotated[
        Literal["linear", "bilstm"],
        typer.Option("--head", help="What is trained for the deck's rows; every single layer gets a linear one."),
    ] = "linear",
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", min=1, help="Read no more than the first N examples of each file."),
    ] = None,
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    quoted: QuotedOption = None,
    pooling: Annotated[
        Literal["mean", "cls"],
        typer.Option("--pooling", help="classify: the vector of a text, from its tokens, for a linear head."),
    ] = "mean",
    seed: SeedOption = 0,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Score every layer of a frozen model for a task, and the deck's six combinations of layers, and a learned mix.

    Each text is read by the model once; heads are trained on what its layers said of it. Scores come with the interval
    in which 95% of the bootstrap's samples of the dev examples lie.
    """
    from regard.device import choose_device
    from regard.interpret.probes.layers import score_layers
    from regard.training.finetuning.sources import TableOptions, read_examples

    choose_device(device)  # before the files, and they before the model: what is wrong with them shows at once
    table = TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted)
    parts = []
    for source in (train, dev):
        read = read_examples(task, source, table=table, labeled=True)
        note(f"{read.path}: {read.description}; {count_of(len(read.examples), 'example')}")
        parts.append(read.examples[:rows])
    with ExitStack() as stack:
        found = score_layers(
            model,
            *parts,
            head=head,
            pooling=pooling,
            seed=seed,
            device=device,
            on_progress=stages(stack, {"reading": "texts"}),
        )
    for remark in _remarks(found):
        note(remark)
    if as_json:
        from dataclasses import asdict

        print_json({"model": model, **asdict(found)})
    else:
        print("\n".join(_lines(model, found)))


def _remarks(found: LayerReport) -> Iterator[str]:
    if found.unseen:
        yield f"dev has labels that train has not, and no head can find: {', '.join(found.unseen)}"
    if found.cut:
        yield truncation_note(found.cut)
    if found.parted:
        yield f"sentences longer than the model reads were read in parts: {found.parted:,} more"


def _lines(model: str, found: LayerReport) -> Iterator[str]:
    from regard.interpret.probes.combinations import DECK_NOTE

    yield f"{METRICS[found.metric]} on {found.dev:,} examples, heads trained on {found.train:,}; layers of {model}"
    yield ""
    yield f"{'every layer':30}{'linear':>8}   95% interval   weight in the mix"
    for row, weight in zip(found.layers, found.mix, strict=True):
        yield f"{_scored(row)}{weight:20.3f}"
    yield ""
    tagged = found.task == "tag"
    yield f"{'combinations':30}{found.head:>8}   95% interval{'    the deck' if tagged else ''}"
    for row in found.rows:
        yield _scored(row) + (f"{row.deck:12.1f}" if row.deck is not None else "")
    if tagged:
        yield ""
        yield DECK_NOTE


def _scored(row: Row) -> str:
    return f"{row.name:30}{row.score:8.2f}   {row.low:5.2f} - {row.high:5.2f}"
