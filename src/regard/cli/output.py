"""Output of the commands: results to stdout, notes and progress to stderr, control characters escaped.

While a command runs, both streams escape control characters. rich bypasses that, so texts are escaped before they are
passed to rich.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from regard.escaping import escape_controls, escape_json, raw_stream
from regard.events import Event, TextPiece
from regard.events import Progress as ProgressEvent
from regard.wording import count_of, duration

if TYPE_CHECKING:
    from rich.console import Console

STATUS_EVERY = 9.0  # seconds between status lines without a terminal
HEARTBEAT = 10.0  # seconds of silence after which a running job is reported
is_quiet = False  # --quiet: print results, warnings and errors only; set by `regard.cli.app.run`


def console(*, stderr: bool = False) -> Console:
    """A rich console. Texts from files, models or users must be escaped before they are printed to it."""
    from rich.console import Console

    # Passed explicitly: while rich draws a progress bar, it replaces the stream by an object of its own.
    return Console(file=raw_stream(sys.stderr if stderr else sys.stdout), highlight=False, soft_wrap=not stderr)


def write_data(text: str) -> None:
    """Write data for scripts: unchanged to a file or a pipe, with control characters escaped to a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(escape_controls(text, multiline=True))
    else:
        raw_stream(sys.stdout).write(text)


def print_json(document: object) -> None:
    """Print the result of a command with --json: one indented document."""
    from regard.files.json_files import json_text

    sys.stdout.write(escape_json(json_text(document, indent=2)) + "\n")


def note(message: str) -> None:
    """Print a message that is not part of the result to stderr; with --quiet only warnings."""
    if is_quiet and not message.startswith("warning:"):
        return
    # Escaped here too: while a progress bar is drawn, rich would interpret markup in what is printed.
    print(escape_controls(message, multiline=True), file=sys.stderr, flush=True)
    Heartbeat.printed = time.monotonic()


@contextmanager
def progress(
    stage: str, *, total: int | None = None, unit: str = "texts", every: float = STATUS_EVERY
) -> Iterator[Callable[[int], None]]:
    """Show progress on stderr; call what it yields with the number of units finished since the last call.

    A terminal shows count, rate and, with a `total`, time left; a log file gets the same as a line if it got
    none for `every` seconds. At the end one summary line is printed, unless the job raised an exception. `unit` is a
    plural that ends in s.
    """
    begin, done = time.perf_counter(), 0

    def rate() -> float:
        return done / max(time.perf_counter() - begin, 1e-9)

    if is_quiet or not sys.stderr.isatty():
        start = time.monotonic()

        def count(more: int) -> None:
            nonlocal done
            done += more
            if time.monotonic() - max(start, Heartbeat.printed) >= every and done != total:
                of_total = f" of {total:,}" if total is not None else ""
                left = f", {duration((total - done) / rate())} left" if total is not None and done else ""
                note(f"{stage}: {done:,}{of_total} {unit}, {_figures(rate())} {unit}/s{left}")

        yield count
    else:
        # Imported here: rich.progress takes as long to import as the rest of the command line.
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
        )
        # By default rich would redirect what is printed to stdout to the stream of the progress bar.
        with Progress(*columns, console=console(stderr=True), transient=True, redirect_stdout=False) as bar:
            task = bar.add_task(escape_controls(stage), total=total, rate="")

            def advance(more: int) -> None:
                nonlocal done
                done += more
                bar.update(task, advance=more, rate=f"{_figures(rate())} {unit}/s")

            yield advance
    seconds = time.perf_counter() - begin
    note(f"{stage}: {count_of(done, unit.removesuffix('s'))} in {_figures(seconds)} s, {_figures(rate())} {unit}/s")


class Heartbeat:
    """Prints a line whenever a job has printed no note for `HEARTBEAT` seconds: its last event, and its time so far."""

    printed = 0.0  # when the last note was printed

    def __init__(self) -> None:
        self._begin = Heartbeat.printed = time.monotonic()
        self._last = self._status = ""  # the status is not printed yet, or not again
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def on_event(self, event: Event) -> None:
        """Keep what an event says; a terminal shows it at once."""
        if isinstance(event, ProgressEvent):
            total = f" of {event.total:,}" if event.total is not None else ""
            self._last = f"{event.stage}, {event.done:,}{total} {event.unit}"
        elif line := event.line():
            self._last, self._status = line.splitlines()[0], line if event.transient else ""
        if sys.stderr.isatty() or (isinstance(event, TextPiece) and sys.stdout.isatty()):
            Heartbeat.printed = time.monotonic()

    def _run(self) -> None:
        while not self._end.wait(max(Heartbeat.printed + HEARTBEAT - time.monotonic(), 0)):
            if (now := time.monotonic()) - Heartbeat.printed >= HEARTBEAT:
                Heartbeat.printed = now
                after = f", after: {self._last}" if self._last else ""
                line, self._status = self._status or f"running, {duration(now - self._begin)} so far{after}", ""
                try:
                    note(line)
                except (OSError, ValueError):  # nobody reads stderr any more
                    return


@contextmanager
def status_line(every: float) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a status line: updated in place in a terminal, elsewhere printed if nothing was for
    `every` seconds."""
    if is_quiet or not sys.stderr.isatty():
        first = True

        def show(line: str) -> None:
            nonlocal first
            if first or time.monotonic() - Heartbeat.printed >= every:
                first = False
                note(line)

        yield show
    else:
        from rich.status import Status
        from rich.text import Text

        with ExitStack() as stack:
            status: Status | None = None

            def change(line: str) -> None:
                nonlocal status
                text = Text(escape_controls(line))  # in a plain `str`, rich would interpret markup
                if status is None:
                    status = stack.enter_context(Status(text, console=console(stderr=True)))
                status.update(text)

            yield change


def _figures(value: float) -> str:
    """Three significant digits: 0.0123, 1.23, 12.3, 12,345."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
