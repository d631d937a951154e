"""The shell around every command: global options, exit codes and error messages.

The rules for every command: results go to stdout and everything else to stderr. Exit codes: 0 success, 1 failure, 2 bad
input, 130 Ctrl-C, 143 terminated. An error is one line; `--debug` adds the traceback. A closed pipe (`| head`) ends the
run silently. Control characters in the output are escaped (`output.py`), so that no name, text or token can control the
terminal.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated

import typer

from regard.cli.signals import Terminated, handling
from regard.errors import OUT_OF_MEMORY, InputError, InputErrors, RegardError, is_out_of_memory
from regard.escaping import escape_controls, escape_stream
from regard.wording import count_of

Register = Callable[[typer.Typer], None]

FAILED, BAD_INPUT, INTERRUPTED, TERMINATED, CLOSED_PIPE = 1, 2, 130, 143, 141


def verbs(name: str = "", second: str = "") -> list[Register]:
    """The commands of `regard`, in the order of the help page, or only that with the name if there is one.

    The others would only take time to build. Their files import torch inside functions only. `second` is the word
    behind the name: `cost embed` is another command than `cost`.
    """
    if name == "version":
        return [_register_version]
    from regard.cli.commands import register
    from regard.verbs import VERBS, find

    module = name.replace("-", "_")
    if module in VERBS and module != "lesson":
        verb, longer = find(module), f"{module}_{second}"
        if longer in VERBS and find(longer).command == f"{name} {second}":
            return [partial(register, verb=find(longer))]
        if verb.command == name and verb.subcommands is None:  # else it belongs to a group, such as `train`
            return [partial(register, verb=verb)]
    from regard.cli import lesson, serve

    return [serve.register, lesson.register, *verb_commands(), _register_version]


def verb_commands() -> list[Register]:
    """The commands that are derived from `regard.verbs`."""
    from regard.cli.commands import register
    from regard.verbs import VERBS, find

    return [partial(register, verb=find(name)) for name in VERBS if name != "lesson"]  # in `regard.cli.lesson`


def build(registers: Iterable[Register], *, pretty: bool = False) -> typer.Typer:
    """An app with the global options and the given commands. `pretty` formats help pages with rich, for terminals."""
    app = typer.Typer(
        name="regard",
        add_completion=False,
        rich_markup_mode="rich" if pretty else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for register in registers:
        register(app)
    return app


def run(arguments: Sequence[str], *, registers: Iterable[Register] | None = None) -> int:
    """Run one command line and return its exit code. Any error is reported as one line, not as a traceback."""
    flags, arguments = _take_flags(arguments)
    debug = "--debug" in flags
    if debug:
        logging.getLogger("regard").setLevel(logging.DEBUG)
    before = sys.stdout, sys.stderr
    try:
        _prepare_streams()
        with handling(), _warnings_as_notes(), _verbosity(flags):
            if registers is None:
                registers = verbs(*arguments[:2])
            command = typer.main.get_command(build(registers, pretty=sys.stdout.isatty()))
            code = 0
            try:
                with command.make_context("regard", list(arguments) or ["--help"]) as context:
                    command.invoke(context)
            except typer.Exit as leave:
                code = leave.exit_code
            # Now, while an error can still be reported: at exit the interpreter could not.
            sys.stdout.flush()
        return code
    except BaseException as error:
        code, message = _explain(error)
        _abandon_stdout()
        if debug and not isinstance(error, typer.TyperException | BrokenPipeError):
            traceback.print_exception(error)
        _print_error(message)
        return code
    finally:
        sys.stdout, sys.stderr = before


def _explain(error: BaseException) -> tuple[int, str]:
    match error:
        case InputErrors():
            return BAD_INPUT, "error: " + "\n".join(map(escape_controls, error.faults))
        case RegardError():
            return BAD_INPUT if isinstance(error, InputError) else FAILED, f"error: {escape_controls(str(error))}"
        case typer.TyperException():
            return error.exit_code, f"error: {escape_controls(_usage(error))}"
        case typer.Abort() | KeyboardInterrupt():
            return INTERRUPTED, "interrupted"
        case Terminated():
            return TERMINATED, "terminated"
        case BrokenPipeError():
            return CLOSED_PIPE, ""
        case OSError() if error.strerror and not is_out_of_memory(error):
            where = f": {escape_controls(str(error.filename))}" if error.filename is not None else ""
            return FAILED, f"error: {error.strerror}{where}"
        case SystemExit():
            return (error.code if isinstance(error.code, int) else FAILED if error.code else 0), ""
    if is_out_of_memory(error):
        return FAILED, f"error: {OUT_OF_MEMORY}"
    message, name = " ".join(str(error).split()), type(error).__name__
    return FAILED, f"internal error: {f'{name}: {message}' if message else name}; run again with --debug to see where"


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the command line, and where to find its help page."""
    # typer converts values with pydantic, which prefixes messages with "Value error, ".
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message} (see `{context.command_path} --help`)" if context is not None else message


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"regard {version('regard')}")
        raise typer.Exit


def _register_version(app: typer.Typer) -> None:
    @app.command()
    def version() -> None:
        """Print the version."""
        _print_version(True)


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; also accepted after a command.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print results, warnings and errors only; also after a command.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Also print versions, log messages, time and memory; also after a command."
        ),
    ] = False,
) -> None:
    """Train, use and look inside transformer language models."""


FLAGS = {"--debug": "--debug", "--quiet": "--quiet", "-q": "--quiet", "--verbose": "--verbose", "-v": "--verbose"}


def _take_flags(arguments: Sequence[str]) -> tuple[set[str], Sequence[str]]:
    """The flags of every command, by their long names, and the other arguments; after `--` they are ordinary texts."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [argument for argument in arguments[:end] if argument not in FLAGS]
    return {FLAGS[argument] for argument in arguments[:end] if argument in FLAGS}, [*options, *arguments[end:]]


@contextlib.contextmanager
def _verbosity(flags: set[str]) -> Iterator[None]:
    """--quiet leaves out notes and progress; --verbose adds log messages and, at the end, versions, time and memory."""
    from regard.cli import output

    if {"--quiet", "--verbose"} <= flags:
        raise InputError("--quiet and --verbose exclude each other; leave out one of them")
    begin, handler = time.perf_counter(), logging.StreamHandler(sys.stderr)
    output.is_quiet = "--quiet" in flags
    if "--verbose" in flags:
        logging.getLogger().addHandler(handler)
        logging.getLogger("regard").setLevel(logging.DEBUG)
    try:
        yield
    finally:
        output.is_quiet = False
        if "--verbose" in flags:
            logging.getLogger().removeHandler(handler)
            output.note(_summary(time.perf_counter() - begin))


def _summary(seconds: float) -> str:
    """What ran: versions, threads, time and memory."""
    from importlib.metadata import version

    torch, memory = sys.modules.get("torch"), ""  # a command without a model does not import torch
    used = f", torch {torch.__version__} with {count_of(torch.get_num_threads(), 'thread')}" if torch else ""
    if sys.platform != "win32":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (20 if sys.platform == "darwin" else 10)
        memory = f", peak memory {peak:,} MiB"
    return f"regard {version('regard')}, Python {sys.version.split()[0]}{used}: {seconds:,.1f} s{memory}"


@contextlib.contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print warnings as one line, without the source location."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _print_error(f"note: {' '.join(str(message).split())}")
        yield


def _prepare_streams() -> None:
    """Output is UTF-8 in every locale, with control characters escaped; lone surrogates do not end the run."""
    if sys.stderr is None:
        # None means closed; `print` would then write messages to stdout, into the results.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the life of the process)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stderr = escape_stream(sys.stderr)
    if sys.stdout is None:
        raise InputError("standard output is closed; send it to a file, or to /dev/null")
    sys.stdout = escape_stream(sys.stdout)


def _abandon_stdout() -> None:
    """Discard what stdout could not take: the interpreter flushes again at exit and would report the error."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _print_error(message: str) -> None:
    if message:
        with contextlib.suppress(OSError):
            print(message, file=sys.stderr, flush=True)
