"""`regard compare`: the words a model puts into a blank, in two sentences, a grid of them, or over the years."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, check_page
from regard.cli.output import note, print_json
from regard.errors import InputError
from regard.escaping import escape_controls
from regard.known import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.interpret.masked_lm.comparison import MaskedComparison
    from regard.interpret.masked_lm.completions import WordCompletions
    from regard.interpret.masked_lm.pair import Chart, PairComparison
    from regard.interpret.masked_lm.sweep import ComparisonSweep

__all__ = ["register"]

LISTED = 15  # completions of a word, and rows of a sweep, in the terminal


def register(app: typer.Typer) -> None:
    app.command("compare")(compare)


def compare(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[A [B]]", help="One or two sentences with a blank, _, or one with slots: [he|she]."),
    ] = None,
    number: Annotated[
        Literal["30", "200", "1000", "5000", "all"] | None,
        typer.Option("--number", "-n", help="How many tokens to show; 30, in a sweep 150, unless said."),
    ] = None,
    chart: Annotated[
        Literal["likelihoods", "differences"],
        typer.Option("--chart", help="One sentence against the other, or their difference over their mean."),
    ] = "likelihoods",
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A model folder, a hub name or a built-in name; twice sets two models against each other.",
            show_default=DEFAULT,
        ),
    ] = None,
    logits: Annotated[
        tuple[str, str] | None,
        typer.Option("--logits", metavar="A B", help="Two JSON lists of logits instead of a model."),
    ] = None,
    vocabulary: Annotated[
        str | None, typer.Option("--vocab", metavar="FILE", help="With --logits: the tokens, one a line.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PAGE.html", help="Write the charts as a page for a browser too."),
    ] = None,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Compare what a masked model puts into the blank of two sentences.

    One sentence shows completions of each of its words. [he|she] in a sentence stands for two; two slots make a grid
    with its differences of differences; [1860..2018] is every number of a range. Differences are of logits,
    probabilities are shares of the full vocabulary.

    Example: regard compare "Jane worked as a _." "Jim worked as a _."
    """
    from regard.files.disk import replace_file
    from regard.interpret.masked_lm.templates import WARNING

    count = None if number is None else 0 if number == "all" else int(number)
    check_page(output)
    with ExitStack() as stack:
        temporary = None if output is None else stack.enter_context(replace_file(output))  # before a model is loaded
        found = _found(texts or [], models or [], logits, vocabulary, number=count, chart=chart, device=device)
        if temporary is not None:
            from regard.render.bundle import page

            temporary.write_text(page(found.payload()), encoding="utf-8")
    note(f"note: {WARNING}")
    if as_json:
        print_json(found.document())
    else:
        print("\n".join(_lines(found)))
        if output is not None:
            print(f"\nThe page is in {output}")


def _found(
    texts: list[str],
    models: list[str],
    logits: tuple[str, str] | None,
    vocabulary: str | None,
    *,
    number: int | None,
    chart: str,
    device: str,
) -> MaskedComparison:
    from regard.interpret.masked_lm.comparison import compare, compare_stored

    if logits is None:
        if vocabulary is not None:
            raise InputError("--vocab goes with --logits A B; a model brings its own vocabulary")
        if not texts:
            raise InputError('expected a sentence with a blank, such as "Jane worked as a _.", or --logits A B')
        return compare(texts, models=models or [DEFAULT], number=number, chart=chart, device=device)
    if vocabulary is None or models:
        raise InputError("--logits A B needs --vocab FILE, the tokens one a line, and takes no --model")
    return compare_stored(logits, vocabulary, texts=texts, number=number, chart=chart)


def _lines(found: MaskedComparison) -> Iterator[str]:
    from regard.interpret.masked_lm.completions import WordCompletions
    from regard.interpret.masked_lm.grid import ComparisonGrid
    from regard.interpret.masked_lm.pair import PairComparison

    match found.result:
        case PairComparison():
            yield from _pair(found.result, found.number, found.chart)
        case ComparisonGrid():
            for a, b in found.result.pairs():
                yield from _pair(found.result.pair(a, b), found.number, found.chart)
                yield ""
            yield "--json and --output have the differences of differences too"
        case WordCompletions():
            yield from _completions(found.result)
        case _:
            yield from _sweep(found.result)


def _pair(pair: PairComparison, number: int, chart: Chart) -> Iterator[str]:
    from rich.cells import cell_len

    a, b = map(escape_controls, pair.labels)
    shown = pair.visible(number, chart).tolist()
    tokens = shown[:number] if number else shown
    words = [escape_controls(pair.tokens[place]) for place in tokens]
    width = max(map(cell_len, [*words, "token"]))
    yield pair.caption(number, chart)
    yield ""
    first, second = max(len(a), 9), max(len(b), 9)
    yield f"  {'token':{width}}  {a:>{first}}  {b:>{second}}  difference of logits"
    left, right = pair.a.probabilities, pair.b.probabilities
    for word, place in zip(words, tokens, strict=True):
        space = " " * (width - cell_len(word))
        shares = f"{left[place]:{first}.3%}  {right[place]:{second}.3%}"
        yield f"  {word}{space}  {shares}  {pair.difference[place]:+10.2f}"
    if len(shown) > len(tokens):
        yield f"  and {len(shown) - len(tokens):,} more in the chart, which --json and --output have"


def _completions(found: WordCompletions) -> Iterator[str]:
    for word in found.words:
        listed = ", ".join(f"{c.token} {c.probability:.3%}" for c in word.completions[:LISTED])
        yield f"{word.word}: {listed}"


def _sweep(sweep: ComparisonSweep) -> Iterator[str]:
    """The tokens whose value changes most between the ends of the range."""
    from rich.cells import cell_len

    change = sweep.series[:, -1] - sweep.series[:, 0]
    yield sweep.caption
    yield ""
    most = sorted(range(len(sweep.tokens)), key=lambda row: -abs(change[row]))[:LISTED]
    names = {row: escape_controls(sweep.tokens[row]) for row in most}
    width = max(map(cell_len, names.values()))
    yield f"  {'':{width}}  {sweep.values[0]:>8}  {sweep.values[-1]:>8}"
    for row, name in names.items():
        space = " " * (width - cell_len(name))
        yield f"  {name}{space}  {sweep.series[row, 0]:+8.2f}  {sweep.series[row, -1]:+8.2f}"
