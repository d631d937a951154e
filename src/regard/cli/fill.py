"""`regard fill`: words for the blanks of a text, with their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelOption
from regard.cli.output import note, print_json
from regard.escaping import escape_controls
from regard.known import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from regard.inference import FilledText

__all__ = ["register"]

BAR = 20  # characters for 100%
LINE = 60  # a longer text is not repeated in the table
EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def register(app: typer.Typer) -> None:
    app.command("fill")(fill)


def fill(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text in which _ or [MASK] marks each blank.")],
    model: ModelOption = DEFAULT,
    top: Annotated[int, typer.Option("--top", "-k", metavar="N", min=1, help="How many candidates to list.")] = 10,
    targets: Annotated[
        str | None,
        typer.Option("--targets", "-t", metavar="A,B,C", help="List these words only, each one token for the model."),
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Fill in the blanks of a text: which words a masked language model finds likely there.

    Probabilities are shares of the full vocabulary, also with --targets. Several blanks are judged one by one, the
    others masked, and then together: filled from left to right, the product of the steps.
    """
    from regard.checkpoints.loading import load
    from regard.device import choose
    from regard.inference import fill_blanks

    words = None if targets is None else [word.strip() for word in targets.split(",") if word.strip()]
    found = fill_blanks(*load(model, device=choose(device)), text, top=top, targets=words)
    if as_json:
        from dataclasses import asdict

        print_json(asdict(found))
        return
    print("\n".join(_lines(found)))
    if not found.exact:
        note("together: the best that a beam search found; it follows the likeliest beginnings, and may miss a better")


def _lines(found: FilledText) -> Iterator[str]:
    yield found.text
    several = len(found.masks) > 1
    for number, candidates in enumerate(found.masks, 1):
        yield f"\nblank {number}" if several else ""
        yield from _table([(c.token, c.probability) for c in candidates])
    if several:
        yield "\ntogether"
        short = len(found.text) <= LINE and found.text.isprintable()
        yield from _table([(one.text if short else " ".join(one.tokens), one.probability) for one in found.joint])


def _table(rows: Sequence[tuple[str, float]]) -> Iterator[str]:
    from rich.cells import cell_len

    shown = [(escape_controls(name), probability) for name, probability in rows]
    width = max(cell_len(name) for name, _ in shown)
    for name, probability in shown:
        space = " " * (width - cell_len(name))
        yield f"  {name}{space}  {probability:8.3%}  {_bar(probability)}".rstrip()


def _bar(probability: float) -> str:
    whole, eighth = divmod(round(probability * BAR * 8), 8)
    return "█" * whole + EIGHTHS[eighth]
