"""`regard embed`: a file of texts to a file of vectors."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ModelOption
from regard.cli.output import note, print_json, progress
from regard.data.files import display_name
from regard.known import DEFAULT_MODEL
from regard.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from regard.inference.embedding import EmbedProgress, EmbedResult

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("embed")(embed)


def embed(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="Texts, one a line; - is standard input; .gz, .xz, .bz2 and .zst are read."
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the vectors go: .npy, .npz or .parquet.")
    ],
    model: ModelOption = DEFAULT_MODEL,
    layers: Annotated[
        str, typer.Option("--layers", "-l", help="-1, or sum, mean or concat of a slice: concat(-4:). 0: embeddings.")
    ] = "-1",
    pooling: Annotated[
        Literal["cls", "mean", "max", "none"] | None,
        typer.Option(
            "--pooling", "-p", help="none: a vector a token. Default: what the model's folder states, or mean."
        ),
    ] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Give every vector the length 1.")] = False,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", metavar="N", min=1, help="In tokens. Default: what the model's files state."),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option("--column", "-c", help="Of a TSV, CSV or JSONL file: a number from 0, a name or a key."),
    ] = None,
    long: Annotated[
        Literal["cut", "error", "windows"], typer.Option("--long", help="What becomes of texts that are too long.")
    ] = "cut",
    blank: Annotated[
        Literal["error", "zero", "skip"],
        typer.Option("--blank", help="What becomes of blank lines: zero gives a row of zeros, skip gives no row."),
    ] = "error",
    shard_size: Annotated[
        int, typer.Option("--shard-size", metavar="N", min=1, help="Texts a shard: what a crash loses at most.")
    ] = 4096,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Embed all texts again, whatever an earlier run has finished of them."),
    ] = False,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Turn texts into vectors, float32, a row a text, in the order of the input.

    Finished shards lie in FILE.partial until the end: after a crash or Ctrl-C the same command continues. The finished
    run leaves a record in FILE.regard.json: the same command again finds FILE intact and embeds nothing. Standard input
    cannot be continued.

    .npy holds the vectors alone, so with --blank skip its rows no longer match the lines; .parquet (line, vector) and
    .npz (lines, vectors) keep the line numbers, from 1. With --pooling none Parquet has the columns line, tokens,
    starts, ends, words, vectors, and .npz the arrays vectors, starts (where each row begins), offsets, words, lines.
    """
    from regard.inference.embedding import embed_file

    try:
        with ExitStack() as stack:
            result = embed_file(
                source,
                output,
                model=model,
                layers=layers,
                pooling=pooling,
                normalize=normalize,
                max_length=max_length,
                column=column,
                long=long,
                blank=blank,
                device=device,
                shard_size=shard_size,
                restart=restart,
                on_progress=_shown(stack, source),
                on_damaged=note,
            )
    except BaseException as error:
        if not isinstance(error, Exception):  # Ctrl-C, or a signal that ends the process
            _say_how_to_continue(source, output)
        raise
    if result.already_done:
        note(f"{result.output} is finished already and intact: nothing was embedded; --restart embeds all texts again")
    for remark in _remarks(result, blank):
        note(remark)
    if as_json:
        print_json(
            {
                "output": str(result.output),
                "rows": result.rows,
                "width": result.width,
                "model": model,
                "layers": layers,
                "pooling": result.pooling,
                "cut": result.cut,
                "windowed": result.windowed,
                "blank": result.blank,
                "resumed": result.resumed,
                "seconds": result.seconds,
                "texts_per_second": result.texts_per_second,
            }
        )
    else:
        print(f"{result.output}: {count_of(result.rows, 'text')}, {result.width} wide, pooling {result.pooling}")


def _shown(stack: ExitStack, source: str) -> Callable[[EmbedProgress], None]:
    """Draw progress from the first report on; the rate is that of this run alone."""
    advance: Callable[[int], None] | None = None
    before = 0

    def show(report: EmbedProgress) -> None:
        nonlocal advance, before
        if advance is None:
            if report.resumed:
                note(f"continuing behind {report.resumed:,} of {report.rows:,} texts")
            if not Path(source).is_file():
                note(f"{display_name(source)} is read once: if this run is interrupted, it cannot be continued")
            advance = stack.enter_context(progress("embedding", total=report.rows - report.resumed))
            before = report.done
        advance(report.done - before)
        before = report.done

    return show


def _remarks(result: EmbedResult, blank: str) -> Iterator[str]:
    if result.cut:
        yield (
            f"{result.cut:,} of {result.rows:,} texts had more than {result.max_length} tokens and were cut; "
            "--long windows embeds all of them"
        )
    if result.windowed:
        yield (
            f"{result.windowed:,} of {result.rows:,} texts had more than {result.max_length} tokens and were embedded "
            "in windows"
        )
    if result.blank:
        yield f"{result.blank:,} blank lines {'were skipped' if blank == 'skip' else 'are rows of zeros'}"


def _say_how_to_continue(source: str, output: str) -> None:
    from regard.inference.embedding.bulk import partial_folder

    folder = partial_folder(output)
    if folder.is_dir():
        note(f"the finished part is kept in {folder}: the same command continues")
    elif Path(source).is_file():
        note("nothing was finished yet: the same command starts anew")
    else:
        note(f"{display_name(source)} cannot be continued: nothing is kept. Put the texts in a file to be able to")
