"""`regard map`: the sentences of a file on a plane, and the nearest neighbours of each."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import (
    MAX_LINE,
    ColumnsOption,
    DelimiterOption,
    DeviceOption,
    HeaderOption,
    JsonOption,
    LayerOption,
    MaxLineOption,
    ModelOption,
    QuotedOption,
    SeedOption,
)
from regard.cli.output import note, print_json, stages
from regard.errors import InputError
from regard.known import DEFAULT_MODEL
from regard.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.interpret.embeddings.sentence_map import SentenceMap

__all__ = ["register"]

LISTED = 10  # sentences in the terminal
KINDS = (".html", ".htm", ".json")


def register(app: typer.Typer) -> None:
    app.command("map")(map_)


def map_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Sentences, one a line, or TSV, CSV, JSONL with labels; - is standard input."
        ),
    ],
    model: ModelOption = DEFAULT_MODEL,
    layer: LayerOption = "-1",
    neighbours: Annotated[
        int, typer.Option("--neighbours", "-k", metavar="K", min=1, help="How many nearest sentences of each.")
    ] = 5,
    pooling: Annotated[
        Literal["mean", "cls", "max"],
        typer.Option("--pooling", help="The vector of a sentence: of all tokens, or of its first."),
    ] = "mean",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=2, help="Of a larger file N sentences are drawn by lot.")
    ] = 2000,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PAGE.html|FILE.json", help="Write a page for a browser, or the data."),
    ] = None,
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    quoted: QuotedOption = None,
    seed: SeedOption = 0,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Put sentences on a map: the first two principal components of their vectors, and each one's nearest by cosine.

    Labels of the file become colours on the page. Neighbours are exact and of the full vectors, not of the plane.

    Example: regard map sentences.txt --output map.html
    """
    from regard.device import choose_device
    from regard.files.disk import replace_file
    from regard.training.finetuning.sources import TableOptions, read_examples

    if output is not None and output.suffix.lower() not in KINDS:
        raise InputError(f"--output {output}: expected a name that ends in .html or .json")
    choose_device(device)  # before the file, and that before the model: what is wrong with them shows at once
    table = TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted)
    read = read_examples("classify", file, table=table)
    note(f"{read.path}: {read.description}; {count_of(len(read.examples), 'sentence')}")
    with ExitStack() as written:
        temporary = None if output is None else written.enter_context(replace_file(output))
        from regard.interpret.embeddings.sentence_map import sentence_map

        with ExitStack() as stack:
            found = sentence_map(
                model,
                read.examples,
                layer=layer,
                pooling=pooling,
                count=neighbours,
                limit=limit,
                seed=seed,
                device=device,
                on_progress=partial(stages(stack, {"embedding": "sentences"}), "embedding"),
            )
        if temporary is not None:
            source = shlex.quote(file) + _said(columns, header, delimiter, quoted, limit=limit, seed=seed)
            temporary.write_text(_content(found, model, source, output), encoding="utf-8", errors="backslashreplace")
    for line in found.notes():
        note(f"note: {line}")
    if as_json:
        print_json({"model": model, **found.document()})
    else:
        print("\n".join(_lines(found)))
        if output is not None:
            print(f"\n{'The data are' if output.suffix.lower() == '.json' else 'The page is'} in {output}")


def _content(found: SentenceMap, model: str, source: str, output: Path | None) -> str:
    if output is not None and output.suffix.lower() == ".json":
        import json

        return json.dumps({"model": model, **found.document()}, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    from regard.render.bundle import page

    return page(found.payload(model, source=source), title="Regard: map")


def _said(
    columns: str | None, header: bool | None, delimiter: str | None, quoted: bool | None, *, limit: int, seed: int
) -> str:
    """The options that say which sentences are read, as they were given."""
    parts = [f"--columns {shlex.quote(columns)}"] if columns else []
    parts += ["--header" if header else "--no-header"] if header is not None else []
    parts += [f"--delimiter {shlex.quote(delimiter)}"] if delimiter else []
    parts += ["--quoted" if quoted else "--unquoted"] if quoted is not None else []
    parts += [f"--limit {limit}"] if limit != 2000 else []
    parts += [f"--seed {seed}"] if seed else []
    return "".join(f" {part}" for part in parts)


def _lines(found: SentenceMap) -> Iterator[str]:
    first, second = found.plane.explained
    yield f"{len(found.texts):,} sentences, {found.width:,} numbers each, on a plane"
    yield f"It keeps {first + second:.1%} of their variance: {first:.1%} to the right, {second:.1%} upwards"
    for place, text in enumerate(found.texts[:LISTED]):
        x, y = found.plane.points[place]
        label = f"  [{found.labels[place]}]" if found.labels and found.labels[place] else ""
        yield f"\n({x:.3f}, {y:.3f})  {_short(text)}{label}"
        near = zip(found.neighbours.places[place], found.neighbours.cosines[place], strict=True)
        yield from (f"    {cosine:6.3f}  {_short(found.texts[other])}" for other, cosine in near)
    if len(found.texts) > LISTED:
        yield f"\nand {len(found.texts) - LISTED:,} more; --json and --output have them all"


def _short(text: str, size: int = 90) -> str:
    text = " ".join(text.split())
    return text if len(text) <= size else text[: size - 3] + "..."
