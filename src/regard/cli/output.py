"""What verbs print: results on stdout, everything else on stderr.

Knows JSON and the terminal, not what a result means.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from regard.errors import RegardError
from regard.wording import amount

__all__ = ["duration", "note", "print_json", "progress", "stages", "ticking"]


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
    # Half a surrogate pair has no UTF-8; the escape that replaces it is JSON's own.
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def note(message: str) -> None:
    """Tell the user something that is not the result."""
    print(message, file=sys.stderr, flush=True)


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
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        # Left to itself, rich would send what is printed to stdout meanwhile to the bar's own stream.
        with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
            task = bar.add_task(doing, total=total, rate="")

            def advance(more: int) -> None:
                nonlocal done
                done += more
                bar.update(task, advance=more, rate=f"{_figures(rate())} {unit}/s")

            yield advance
    seconds = time.perf_counter() - begin
    note(f"{doing}: {amount(done, unit.removesuffix('s'))} in {_figures(seconds)} s, {_figures(rate())} {unit}/s")


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
        from rich.console import Console
        from rich.status import Status

        with ExitStack() as stack:
            status: Status | None = None

            def change(line: str) -> None:
                nonlocal status
                if status is None:
                    status = stack.enter_context(Status(line, console=Console(stderr=True)))
                status.update(line)

            yield change


def duration(seconds: float) -> str:
    """1h05m, 2min 13s or 40s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}min {rest}s" if minutes else f"{rest}s"


def _figures(value: float) -> str:
    """Three figures are as many as a time or a rate deserves: 0.0123, 1.23, 12.3, 12,345."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
