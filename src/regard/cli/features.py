"""`regard features`: sentences to vectors to a classifier, each stage shown as the lecture's slides do."""

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
    check_page,
)
from regard.cli.output import note, print_json, stages
from regard.escaping import escape_controls
from regard.files.disk import replace_file
from regard.known import DEFAULT_MODEL
from regard.wording import count_of, truncation_note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from regard.interpret.probes.regression import Outcome
    from regard.interpret.probes.walk import Walk

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("features")(features)


def features(
    data: Annotated[
        str, typer.Option("--data", metavar="FILE", help="Texts with labels: TSV, CSV, JSONL; - is standard input.")
    ],
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="Take the first N texts.")] = 2000,
    model: ModelOption = DEFAULT_MODEL,
    pooling: Annotated[
        Literal["cls", "mean"],
        typer.Option("--pooling", help="The vector of a text: of its first token, or the mean of all."),
    ] = "cls",
    layer: LayerOption = "-1",
    as_in_deck: Annotated[
        bool,
        typer.Option("--as-in-deck", help="Do it once more without attention mask, as the slides do, and compare."),
    ] = False,
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    quoted: QuotedOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PAGE.html", help="Write the walk as a page, with --as-in-deck."),
    ] = None,
    seed: SeedOption = 0,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Walk from sentences to a classifier on a frozen model's vectors: tokens, ids, padding, hidden states, a slice.

    Logistic regression then learns the labels from three quarters of the texts and is scored on the rest, and by
    cross-validation on all. Needs scikit-learn.
    """
    from regard.device import choose_device
    from regard.training.finetuning.sources import TableOptions, read_examples

    check_page(output)
    choose_device(device)  # before the file, and that before the model: what is wrong with them shows at once
    table = TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted)
    read = read_examples("classify", data, table=table, labeled=True)
    note(f"{read.path}: {read.description}; {count_of(len(read.examples), 'example')}")
    with ExitStack() as written:
        # Whether it can be written is known before the work.
        place = None if output is None else written.enter_context(replace_file(output))
        from regard.interpret.probes.walk import walk

        with ExitStack() as stack:
            found = walk(
                model,
                read.examples[:rows],
                pooling=pooling,
                layer=layer,
                as_in_deck=as_in_deck or place is not None,
                seed=seed,
                device=device,
                on_progress=partial(stages(stack, {"embedding": "texts"}), "embedding"),
            )
        if place is not None:
            from regard.interpret.embeddings.walk import payload_of
            from regard.render.bundle import page

            source = _source(data, rows, columns=columns, header=header, delimiter=delimiter, quoted=quoted)
            used = read.examples[:rows]
            payload = payload_of(model, found, used, total=len(used), layer=layer, seed=seed, source=source)
            place.write_text(page(payload, title="Regard: features"), encoding="utf-8", errors="backslashreplace")
    if found.cut:
        note(truncation_note(found.cut))
    if as_json:
        from dataclasses import asdict

        print_json({"model": model, "layer": layer, **asdict(found)})
    else:
        print("\n".join(_lines(found)))
        if output is not None:
            print(f"\nThe page is in {output}")


def _source(
    data: str, rows: int, *, columns: str | None, header: bool | None, delimiter: str | None, quoted: bool | None
) -> str:
    """The options that say which texts are read, as they were given."""
    parts = ["--data", data, "--rows", str(rows)]
    parts += ["--columns", columns] if columns else []
    parts += ["--header" if header else "--no-header"] if header is not None else []
    parts += ["--delimiter", delimiter] if delimiter else []
    parts += ["--quoted" if quoted else "--unquoted"] if quoted is not None else []
    return shlex.join(parts)


def _lines(found: Walk) -> Iterator[str]:
    count, longest = found.matrix
    shared = ", ".join(f"{label}: {number:,}" for label, number in found.counts.items())
    yield f"1. {count:,} texts with labels ({shared})"
    for text, label in zip(found.texts, found.labels, strict=True):
        yield f"   {label:>4}  {_short(text, 90)}"
    yield ""
    yield "2. Tokens of the first text, with their ids"
    yield from _columns(found.tokens[0], found.ids[0])
    yield ""
    yield "3. Every text as ids"
    yield from (f"   {_row(one)}" for one in found.ids)
    yield ""
    yield f"4. Padded to the longest text: {count:,} x {longest}, {found.padding:.0f}% of it padding"
    yield from (f"   {_row(one)}" for one in found.padded)
    yield ""
    yield f"5. Attention mask, {count:,} x {longest}: 1 is a token, 0 is padding and not attended to"
    yield from (f"   {_row(one)}" for one in found.mask)
    yield ""
    yield f"6. Hidden states: {_by(found.hidden)} (texts x tokens x width), made in batches"
    yield ""
    how = "the slice [:, 0, :], each text's first token" if found.pooling == "cls" else "the mean of each text's tokens"
    yield f"7. Features: {how}: {_by(found.slice)}"
    for vector, label in zip(found.features, found.labels, strict=True):
        yield f"   {'  '.join(f'{value:8.4f}' for value in vector[:4])}  ...  {vector[-1]:8.4f}   label {label}"
    yield ""
    outcome = found.masked
    yield f"8. Logistic regression: learned from {outcome.train:,} texts, scored on the other {outcome.test:,}"
    yield from _outcomes(found.masked, found.unmasked)
    if found.similarity is not None:
        yield f"   cosine of a text's vectors with and without mask, on average {found.similarity / 100:.3f}"


def _outcomes(masked: Outcome, unmasked: Outcome | None) -> Iterator[str]:
    both = [masked] if unmasked is None else [masked, unmasked]
    if unmasked is not None:
        yield f"   {'':34}{'with mask':>16}{'as in the deck':>16}"
    yield f"   {'accuracy':34}" + "".join(f"{one.accuracy:15.2f}%" for one in both)
    folds = (f"{one.mean:.2f} +- {one.deviation:.2f}%" for one in both)
    yield f"   {'5-fold cross-validation':34}" + "".join(f"{fold:>16}" for fold in folds)
    yield f"   {'always guessing the larger class':34}" + "".join(f"{one.guess:15.2f}%" for one in both)


def _columns(tokens: Sequence[str], ids: Sequence[int]) -> Iterator[str]:
    """Tokens above their ids, as many in a line as fit."""
    from rich.cells import cell_len

    cells = [(escape_controls(token), str(number)) for token, number in zip(tokens, ids, strict=True)]
    line: list[tuple[str, str]] = []
    room = 0
    for cell in [*cells, None]:
        width = 0 if cell is None else max(cell_len(cell[0]), len(cell[1])) + 2
        if line and (cell is None or room + width > 100):
            sizes = [max(cell_len(token), len(number)) + 2 for token, number in line]
            yield "   " + "".join(t + " " * (s - cell_len(t)) for (t, _), s in zip(line, sizes, strict=True)).rstrip()
            yield "   " + "".join(n.ljust(s) for (_, n), s in zip(line, sizes, strict=True)).rstrip()
            line, room = [], 0
        if cell is not None:
            line.append(cell)
            room += width


def _row(numbers: Sequence[int]) -> str:
    """The beginning of a row and its end."""
    if len(numbers) <= 12:
        return f"[{', '.join(map(str, numbers))}]"
    return f"[{', '.join(map(str, numbers[:8]))}, ..., {', '.join(map(str, numbers[-3:]))}]"


def _by(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


def _short(text: str, size: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= size else text[: size - 3] + "..."
