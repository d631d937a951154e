"""Behavior common to all verbs, tested with verbs defined here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Annotated

import pytest
import typer

from regard.cli.app import run
from regard.errors import OUT_OF_MEMORY, InputError, RegardError

FAILURES: dict[str, BaseException] = {
    "input": InputError("a.txt line 3: blank; remove it"),
    "name": InputError("a\nerror: b\x1b: no such file"),
    "regard": RegardError("the hub did not answer"),
    "defect": RuntimeError("no layer\n  7"),
    "silent": AssertionError(),
    "memory": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
    "disk": OSError(28, "No space left on device", "out.npy"),
    "interrupt": KeyboardInterrupt(),
    "exit": typer.Exit(7),
}


def register(app: typer.Typer) -> None:
    @app.command()
    def fail(how: str) -> None:
        print("a result")
        raise FAILURES[how]

    @app.command()
    def say(text: str, loud: Annotated[bool, typer.Option("--loud")] = False) -> None:
        print(text.upper() if loud else text)

    @app.command()
    def warn() -> None:
        warnings.warn("2 tensors are not used", stacklevel=1)


Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("input", 2, "error: a.txt line 3: blank; remove it\n"),
        ("name", 2, "error: a\\nerror: b\\x1b: no such file\n"),
        ("regard", 1, "error: the hub did not answer\n"),
        ("defect", 1, "internal error: RuntimeError: no layer 7; run again with --debug to see where\n"),
        ("silent", 1, "internal error: AssertionError; run again with --debug to see where\n"),
        ("memory", 1, f"error: {OUT_OF_MEMORY}\n"),
        ("disk", 1, "error: No space left on device: out.npy\n"),
        ("interrupt", 130, "interrupted\n"),
        ("exit", 7, ""),
    ],
)
def test_exit_codes_and_one_line_errors(how: str, code: int, message: str, capsys: Captured) -> None:
    assert run(["fail", how], registers=[register]) == code
    assert capsys.readouterr() == ("a result\n", message)


def test_a_warning_is_one_line_on_stderr(capsys: Captured) -> None:
    assert run(["warn"], registers=[register]) == 0
    assert capsys.readouterr() == ("", "note: 2 tensors are not used\n")


@pytest.mark.parametrize("arguments", [["--debug", "fail", "defect"], ["fail", "--debug", "defect"]])
def test_debug_shows_a_traceback_before_and_after_the_verb(arguments: list[str], capsys: Captured) -> None:
    assert run(arguments, registers=[register]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert "raise FAILURES[how]" in error


def test_debug_after_two_dashes_is_an_argument(capsys: Captured) -> None:
    assert run(["say", "--", "--debug"], registers=[register]) == 0
    assert capsys.readouterr().out == "--debug\n"


@pytest.mark.parametrize(
    ("arguments", "message", "help_of"),
    [
        (["sya", "x"], "No such command 'sya'. Did you mean 'say'?", "regard"),
        (["say", "x", "--luod"], "No such option: --luod (Possible options: --loud)", "regard say"),
        (["say"], "Missing argument", "regard say"),
        (["say", "x", "y"], "unexpected extra argument", "regard say"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(
    arguments: list[str], message: str, help_of: str, capsys: Captured
) -> None:
    assert run(arguments, registers=[register]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.endswith(f" (see `{help_of} --help`)\n")
    assert error.count("\n") == 1


def test_a_run_leaves_the_signal_handler_as_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(["say", "x"], registers=[register])
    assert signal.getsignal(signal.SIGTERM) is before


PROGRAM = """
import os, sys, time, typer
from regard.cli.app import run

def register(app: typer.Typer) -> None:
    @app.command()
    def flood() -> None:
        while True:
            print("line")

    @app.command()
    def say() -> None:
        print("é\\ud800")

    @app.command()
    def wait() -> None:
        try:
            print("waiting", flush=True)
            while True:  # a signal just before one long wait would not end it
                time.sleep(0.02)
        finally:
            print("tidied", file=sys.stderr)

sys.exit(run(sys.argv[1:], registers=[register]))
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return [sys.executable, str(path)]


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
@pytest.mark.usefixtures("default_sigint")
def test_signals_unwind_the_stack_and_print_a_message(
    number: signal.Signals, code: int, message: str, program: list[str]
) -> None:
    process = subprocess.Popen([*program, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    _, error = process.communicate(timeout=200)
    assert (process.returncode, error) == (code, f"tidied\n{message}\n")


@pytest.mark.parametrize("verb", ["flood", "say", "--help"])
def test_a_closed_pipe_ends_the_run_silently(verb: str, program: list[str]) -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen([*program, verb], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    os.close(reader)
    _, error = process.communicate(timeout=200)
    assert (process.returncode, error) == (141, "")


def test_a_full_disk_is_reported(program: list[str]) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([*program, "say"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=200)
    assert result.returncode == 1
    assert result.stderr.startswith("error: No space left") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_output_is_utf8_in_any_locale(locale: str, program: list[str]) -> None:
    environment = {**os.environ, "LC_ALL": locale, "PYTHONIOENCODING": "latin-1"}
    result = subprocess.run([*program, "say"], capture_output=True, env=environment, timeout=200)
    assert (result.returncode, result.stdout) == (0, "é\\ud800\n".encode())


@pytest.mark.parametrize(("closed", "code", "other"), [(">&-", 2, "standard output is closed"), ("2>&-", 2, "")])
def test_closed_streams(closed: str, code: int, other: str, program: list[str]) -> None:
    command = f'exec "$0" "$1" nonsense {closed}'
    result = subprocess.run(["sh", "-c", command, *program], capture_output=True, text=True, timeout=200)
    assert result.returncode == code
    assert other in result.stderr
    assert result.stdout == ""
