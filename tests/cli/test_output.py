"""JSON that any parser accepts, and progress that is kept separate from results."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.cli.output import note, print_json, progress
from regard.errors import RegardError

Captured = pytest.CaptureFixture[str]

texts = st.text()
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine must not fail the test
@given(documents)
def test_json_documents_round_trip(document: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("sys.stdout.write", written.append)
        print_json(document)
    (whole,) = written
    assert json.loads(whole) == document
    whole.encode("utf-8")


def test_non_ascii_letters_are_not_escaped(capsys: Captured) -> None:
    print_json({"text": "été"})
    assert capsys.readouterr().out == '{\n  "text": "été"\n}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_json_cannot_represent_are_rejected(value: float, capsys: Captured) -> None:
    with pytest.raises(RegardError, match="NaN or infinity"):
        print_json({"score": [value]})
    assert capsys.readouterr().out == ""


def test_notes_go_to_stderr(capsys: Captured) -> None:
    note("3 texts were cut")
    assert capsys.readouterr() == ("", "3 texts were cut\n")


def test_progress_off_a_terminal_is_one_summary_line(capsys: Captured) -> None:
    with progress("embedding", total=2000, unit="texts") as advance:
        for _ in range(4):
            advance(500)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("embedding: 2,000 texts in ")
    assert captured.err.endswith(" texts/s\n")
    assert captured.err.count("\n") == 1


def test_progress_in_a_log_file_has_rate_and_time_left(capsys: Captured) -> None:
    with progress("predicting", total=2000, unit="rows", every=0.0) as advance:
        advance(500)
        advance(1500)
    first, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"predicting: 500 of 2,000 rows, [\d,.e+]+ rows/s, \d+s left", first)
    assert last.startswith("predicting: 2,000 rows in ")


def test_singular_and_plural_in_the_summary(capsys: Captured) -> None:
    with progress("embedding") as advance:
        advance(1)
    assert capsys.readouterr().err.startswith("embedding: 1 text in ")


def test_a_job_that_fails_gets_no_summary(capsys: Captured) -> None:
    with pytest.raises(ZeroDivisionError), progress("embedding"):
        raise ZeroDivisionError
    assert capsys.readouterr().err == ""


def test_on_a_terminal_the_bar_is_drawn_and_results_stay_on_stdout() -> None:
    program = (
        "from regard.cli.output import progress\n"
        "with progress('embedding', total=4) as advance:\n"
        "    advance(3)\n"
        "    print('a result')\n"
        "    advance(1)\n"
    )
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    result = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=terminal, env=environment, timeout=200
    )
    os.close(terminal)
    drawn = os.read(reader, 1 << 20).decode()
    os.close(reader)
    assert result.stdout == b"a result\n"
    assert "4/4" in drawn
    assert "texts/s" in drawn
    assert "embedding: 4 texts in " in drawn


def run_with_terminal(program: str) -> tuple[str, str]:
    """The output of a program whose stdout is a pipe and whose stderr is a terminal."""
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    result = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=terminal, env=environment, timeout=200
    )
    os.close(terminal)
    drawn = os.read(reader, 1 << 20).decode()
    os.close(reader)
    return result.stdout.decode(), drawn


HOSTILE = "[blink]x[/blink] \x1b]8;;http://x\x07 \x1b[5m \u202e"


def test_output_during_a_progress_bar_has_no_styles_or_links() -> None:
    """rich would interpret escape sequences in printed text and markup in descriptions."""
    for bar in ("progress(HOSTILE, total=4)", "status_line(1)"):
        _, drawn = run_with_terminal(
            "from regard.cli.output import note, progress, status_line\n"
            f"HOSTILE = {HOSTILE!r}\n"
            f"with {bar} as change:\n"
            f"    change({'1' if 'total' in bar else 'HOSTILE'})\n"
            "    note(HOSTILE)\n"
        )
        assert "\x1b[5m" not in drawn and "\x1b]8" not in drawn and "\u202e" not in drawn
        assert drawn.count(r"[blink]x[/blink] \x1b]8;;http://x\x07 \x1b[5m \u202e") >= 2
        assert "\x1b[?25l" in drawn, "our own drawing is as it was"


REGISTER = """
import sys, typer
from regard.cli.app import run
from regard.cli.output import print_json, write_data

def register(app: typer.Typer) -> None:
    @app.command()
    def say(text: str) -> None:
        "Say a text."
        write_data(text + "\\n")
        print(text)
        print_json(text)

    @app.command()
    def fail(text: str) -> None:
        raise RuntimeError(text)

sys.exit(run(sys.argv[1:], registers=[register]))
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_data_is_exact_in_a_pipe_and_escaped_on_a_terminal(terminal: bool) -> None:
    text = "a\x1b[5mb\x9bc\u202e"
    escaped = r"a\x1b[5mb\x9bc\u202e"
    reader, writer = pty.openpty() if terminal else os.pipe()
    code = [sys.executable, "-c", REGISTER, "say", text]
    result = subprocess.run(code, stdout=writer, stderr=subprocess.PIPE, timeout=200)
    os.close(writer)
    data, plain, document = os.read(reader, 1 << 20).decode().replace("\r\n", "\n").splitlines()
    os.close(reader)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (data, plain) == (escaped if terminal else text, escaped)
    assert document == r'"a\u001b[5mb\u009bc\u202e"' and json.loads(document) == text


def test_a_traceback_is_escaped_and_help_on_a_terminal_has_colors() -> None:
    failed = subprocess.run(
        [sys.executable, "-c", REGISTER, "--debug", "fail", "a\x1b[5m"], capture_output=True, timeout=200
    )
    assert failed.returncode == 1 and failed.stderr.count(rb"a\x1b[5m") >= 2 and b"\x1b" not in failed.stderr
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    subprocess.run([sys.executable, "-c", REGISTER, "say", "--help"], stdout=writer, env=environment, timeout=200)
    os.close(writer)
    page = os.read(reader, 1 << 20).decode()
    os.close(reader)
    assert "\x1b[" in page and "Say a text." in page and "\\x1b" not in page
