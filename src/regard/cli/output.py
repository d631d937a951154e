"""What verbs print: results on stdout, everything else on stderr, and nothing in them that steers a terminal.

Knows JSON and the terminal, not what a result means. While a verb runs, both streams escape control characters; what
rich draws goes past that, so a text is escaped before rich gets it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from regard.errors import RegardError
from regard.escaping import escape_controls, escape_json, raw_stream
from regard.wording import count_of

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "console",
    "duration",
    "json_line",
    "note",
    "print_json",
    "progress",
    "stages",
    "ticking",
    "write_data",
]


def console(*, stderr: bool = False) -> Console:
    """A rich console for our own drawings. What comes from a file, a model or a user must be escaped before."""
    from rich.console import Console

    # Named, not looked up: while rich draws a bar it finds something of its own in place of the stream.
    return Console(file=raw_stream(sys.stderr if stderr else sys.stdout), highlight=False, soft_wrap=not stderr)


def write_data(text: str) -> None:
    """Write a result that scripts read, and its characters are what it is: as it is to a file or a pipe.

    A terminal gets it with control characters escaped, as everything else.
    """
    if sys.stdout.isatty():
        sys.stdout.write(escape_controls(text, multiline=True))
    else:
        raw_stream(sys.stdout).write(text)


def json_line(document: object) -> str:
    """A document on one line, without control characters."""
    return escape_json(json.dumps(document, ensure_ascii=False))


def print_json(document: object) -> None:
    """The one result of a verb with --json: one indented document and a line end."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    except ValueError as error:
        if "JSON compliant" not in str(error):
            raise
        raise RegardError(
            "the result holds NaN or infinity, which JSON cannot carry; look for a damaged checkpoint or an overflow"
        ) from None
    sys.stdout.write(escape_json(text) + "\n")


def note(message: str) -> None:
    """Tell the user something that is not the result."""
    # Here too, and not by the stream alone: while a bar is drawn, rich reads what is printed as colors and links.
    print(escape_controls(message, multiline=True), file=sys.stderr, flush=True)


@contextmanager
def progress(doing: str, *, total: int | None = None, unit: str = "texts") -> Iterator[Callable[[int], None]]:
    """Show on stderr how far a job is; call what it yields with the number of `unit` done since the last call.

    A terminal sees count, rate and time left while it runs (no time left without a `total`); every stderr gets one
    summary line at the end. A job that ends with an exception gets no summary: the error is the last word.
    `unit` is a plural that ends in s.
    """
    begin, done = time.perf_counter(), 0

    def rate() -> float:
        return done / max(time.perf_counter() - begin, 1e-9)

    if not sys.stderr.isatty():

        def count(more: int) -> None:
            nonlocal done
            done += more

        yield count
    else:
        # Here and not above: rich.progress costs as much to import as all the rest of the command line.
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
        )
        # Left to itself, rich would send what is printed to stdout meanwhile to the bar's own stream.
        with Progress(*columns, console=console(stderr=True), transient=True, redirect_stdout=False) as bar:
            task = bar.add_task(escape_controls(doing), total=total, rate="")

            def advance(more: int) -> None:
                nonlocal done
                done += more
                bar.update(task, advance=more, rate=f"{_figures(rate())} {unit}/s")

            yield advance
    seconds = time.perf_counter() - begin
    note(f"{doing}: {count_of(done, unit.removesuffix('s'))} in {_figures(seconds)} s, {_figures(rate())} {unit}/s")


def stages(stack: ExitStack, units: Mapping[str, str]) -> Callable[[str, int, int], None]:
    """A function to call with what is being done, how much of it is done, and of how much: one `progress` for each.

    `units` says in what each is counted; the last one ends with `stack`.
    """
    doing, before = "", 0
    advance: Callable[[int], None] | None = None

    def show(what: str, done: int, total: int) -> None:
        nonlocal doing, before, advance
        if advance is None or what != doing:
            stack.close()
            advance = stack.enter_context(progress(what, total=total, unit=units.get(what, "steps")))
            doing, before = what, 0
        advance(done - before)
        before = done

    return show


@contextmanager
def ticking(every: float) -> Iterator[Callable[[str], None]]:
    """Call what it yields with a line as often as you like: a terminal sees it change, elsewhere one now and then."""
    if not sys.stderr.isatty():
        last = -every

        def say(line: str) -> None:
            nonlocal last
            if time.monotonic() - last >= every:
                last = time.monotonic()
                note(line)

        yield say
    else:
        from rich.status import Status
        from rich.text import Text

        with ExitStack() as stack:
            status: Status | None = None

            def change(line: str) -> None:
                nonlocal status
                text = Text(escape_controls(line))  # a `str` would be read for rich's markup
                if status is None:
                    status = stack.enter_context(Status(text, console=console(stderr=True)))
                status.update(text)

            yield change


def duration(seconds: float) -> str:
    """1h05m, 2min 13s or 40s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}min {rest}s" if minutes else f"{rest}s"


def _figures(value: float) -> str:
    """Three figures are as many as a time or a rate deserves: 0.0123, 1.23, 12.3, 12,345."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
