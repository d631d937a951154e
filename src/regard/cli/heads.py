"""`regard heads`: which known pattern every head of a model follows over the texts of a file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ModelOption, SeedOption, check_page
from regard.cli.output import note, print_json, stages
from regard.known import DEFAULT_MODEL
from regard.wording import amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.interpret.heads.census import HeadCensus, HeadPatterns

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("heads")(heads)


def heads(
    text: Annotated[
        str, typer.Option("--text", "-t", metavar="FILE", help="Texts, one a line, or pairs with a tab; - is stdin.")
    ],
    model: ModelOption = DEFAULT_MODEL,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Read so many texts or pairs and no more.")
    ] = 100,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PAGE.html", help="Write a page for a browser, with examples."),
    ] = None,
    seed: SeedOption = 0,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Take a census of a model's heads: next word, previous word, same word, delimiter and other known patterns.

    A score is the share of attention that falls where a pattern points. Beside it stands what chance gives, where the
    tokens looked at are shuffled. A head is named after a pattern that holds at 5% after Holm's correction for all
    heads and patterns, and takes at least 10 points more than chance; of several, after the one furthest above it.
    """
    from regard.files.disk import replacing
    from regard.interpret.heads.census import head_census_of_file, reproduce_from_file

    check_page(output)
    with ExitStack() as stack:
        temporary = None if output is None else stack.enter_context(replacing(output))  # before a model is loaded
        with ExitStack() as shown:
            show = stages(shown, {"reading": "texts"})
            found = head_census_of_file(
                text,
                model=model,
                limit=limit,
                seed=seed,
                device=device,
                progress=lambda done, total: show("reading", done, total),
            )
        if temporary is not None:
            from regard.render.bundle import page

            payload = found.payload(**reproduce_from_file(text, model=model, limit=limit, seed=seed))
            temporary.write_text(page(payload), encoding="utf-8")
    for line in found.notes():
        note(line)
    if as_json:
        print_json(found.document())
    else:
        print("\n".join(_lines(found)))
        if output is not None:
            print(f"\nThe page is in {output}")


def _lines(found: HeadCensus) -> Iterator[str]:
    yield f"{len(found.heads)} heads of {found.model} over {amount(found.read, 'text')}"
    yield ""
    for name, count in found.counts.items():
        yield f"  {name:42}  {count:4}"
    yield f"  {'none of these':42}  {sum(head.pattern is None for head in found.heads):4}"
    yield ""
    yield f"  {'layer':>5}  {'head':>4}  {'pattern':42}  {'score':>6}  {'chance':>6}  corrected p"
    for head in found.heads:
        yield _row(head)


def _row(head: HeadPatterns) -> str:
    finding = next(one for one in head.findings if one.pattern == head.nearest)
    name = head.pattern or f"none; nearest: {head.nearest}"
    if finding.score is None or finding.chance is None or finding.corrected is None:
        return f"  {head.layer:5}  {head.head:4}  {name:42}"
    tail = f"{finding.score:6.3f}  {finding.chance:6.3f}  {finding.corrected:.2g}"
    return f"  {head.layer:5}  {head.head:4}  {name[:42]:42}  {tail}"
