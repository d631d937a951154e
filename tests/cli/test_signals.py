"""Ctrl-C and SIGTERM on the command line are never lost, not even during an import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.heartbeat import without_heartbeat

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="signals of this kind exist on POSIX systems only"),
    pytest.mark.usefixtures("default_sigint"),
]

ENDS = [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "terminated\n")]

# A command with one verb, which runs the Python code in the variable BODY.
PROGRAM = """
import os, signal, sys, time, typer
from regard.cli.app import run

def register(app):
    @app.command()
    def execute():
        exec(os.environ["BODY"], globals())

sys.exit(run(["execute"], registers=[register]))
"""


def execute(
    body: str, folder: Path, *, signals: Sequence[tuple[str, int]] = (), program: str = PROGRAM
) -> tuple[int, str, str]:
    """Runs the body as a verb and sends each signal when its line appears on stdout; returns code, stdout and
    stderr."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "BODY": body}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    with process:
        out = ""
        for line, number in signals:
            out += process.stdout.readline()
            assert out.endswith(f"{line}\n")
            process.send_signal(number)
        rest, error = process.communicate(timeout=200)
    return process.returncode, out + rest, error


# As C extensions do whose initialization calls Python code: errors there are dropped.
SWALLOWING = """
import signal, time
try:
    signal.raise_signal(signal.{name})
    time.sleep(0.2)
except BaseException:
    pass
print("imported", flush=True)
"""


@pytest.mark.parametrize(("number", "code", "message"), ENDS)
@pytest.mark.parametrize("statement", ["import swallowing", "import package.swallowing", "from package import outer"])
def test_a_signal_during_an_import_is_deferred_to_its_end(
    statement: str, number: signal.Signals, code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "package").mkdir()
    for name in ("swallowing.py", "package/swallowing.py"):
        (tmp_path / name).write_text(SWALLOWING.format(name=number.name))
    (tmp_path / "package" / "outer.py").write_text("try:\n    import swallowing\nfinally:\n    print('outer')\n")
    lines = "imported\nouter\n" if "outer" in statement else "imported\n"
    assert execute(f"{statement}\ntime.sleep(20)\nprint('lost')", tmp_path) == (code, lines, message)


def test_a_failing_import_still_ends_with_the_signal(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\nraise AttributeError('no intp')\n"
    )
    body = "try:\n    import failing\nexcept AttributeError:\n    time.sleep(20)\nprint('lost')"
    assert execute(body, tmp_path) == (130, "", "interrupted\n")


HANGING = """
import time
from regard.cli import signals
print("hanging", flush=True)
count = 0
while True:
    try:
        time.sleep(0.1)
        count += 1
        if count == 10:
            signals.PATIENCE = 0.0
        print(count, flush=True)
    except BaseException:
        pass
"""


def test_a_second_signal_ends_a_hanging_import(tmp_path: Path) -> None:
    """The first signal is deferred, and so is an early second one; after PATIENCE none is."""
    (tmp_path / "hanging.py").write_text(HANGING)
    body = "from regard.cli import signals\nsignals.PATIENCE = 1000.0\nimport hanging"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "BODY": body}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"hanging\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGINT)
        for count in range(2, 12):
            assert process.stdout.readline() == b"%d\n" % count
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=200) == 130
        assert process.stderr.read() == b"interrupted\n"


@pytest.mark.parametrize(("number", "code", "message"), ENDS)
def test_an_error_that_python_drops_is_raised_again(
    number: signal.Signals, code: int, message: str, tmp_path: Path
) -> None:
    """Python reports and drops exceptions of `__del__` and weak reference callbacks."""
    body = f"class Last:\n    def __del__(self):\n        signal.raise_signal({int(number)})\n\nLast()\ntime.sleep(20)"
    assert execute(body, tmp_path) == (code, "", message)


@pytest.mark.parametrize(("number", "code", "message"), ENDS)
def test_two_signals_during_an_import_of_a_long_job(
    number: signal.Signals, code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "swallowing.py").write_text(SWALLOWING.format(name=number.name))
    body = f"""
from regard.training.stopping import stopping
with stopping() as stop:
    signal.raise_signal({int(number)})
    assert stop.requested
    import swallowing
    time.sleep(20)
print("lost")
"""
    assert execute(body, tmp_path) == (code, "imported\n", message)


def test_a_signal_that_the_parent_ignores_stays_ignored(tmp_path: Path) -> None:
    """Shells start background jobs this way."""
    ignoring = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{PROGRAM}"
    body = "print('ready', flush=True)\ntime.sleep(0.2)\nprint('done', flush=True)\ntime.sleep(20)"
    signals = [("ready", signal.SIGINT), ("done", signal.SIGTERM)]
    assert execute(body, tmp_path, signals=signals, program=ignoring) == (143, "ready\ndone\n", "terminated\n")


# `regard fill`, with a signal when a given module is imported.
FINDING = """
import signal, sys
chosen = [sys.argv[1]]

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in chosen:
            chosen.clear()
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder)
sys.argv = ["regard", "fill", "a [MASK]"]
from regard.cli import main
main()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "module", ["regard.cli.app", "typer", "numpy", "numpy._core._multiarray_umath", "torch", "torch._C", "safetensors"]
)
def test_ctrl_c_during_an_import_of_a_verb(module: str) -> None:
    command = [sys.executable, "-c", FINDING, module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, without_heartbeat(done.stderr)) == (130, "", "interrupted\n")


# `regard generate` without an end; the printed line says that it is about to start.
ENDLESS = """
import sys
from regard.cli import main
from regard.cli.signals import exiting
sys.argv = ["regard", "generate", "the film", "--max-new-tokens", "1000000", "--json"]
with exiting():
    print("begin", flush=True)
    main()
"""
RUNS = int(os.environ.get("REGARD_INTERRUPTS", "12"))


@pytest.mark.long
@pytest.mark.parametrize("number", range(RUNS))
def test_ctrl_c_within_the_first_two_seconds(number: int) -> None:
    """Checks exit code, message and no traceback at random moments; REGARD_INTERRUPTS sets the number of runs."""
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "begin\n"
        time.sleep(2 * number / RUNS)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=200) == 130
        *notes, last = without_heartbeat(process.stderr.read()).splitlines()
        assert last == "interrupted"
        assert all("context has room" in note for note in notes)  # printed when the model is loaded


@pytest.mark.parametrize(("number", "code", "message"), ENDS)
def test_a_signal_while_the_interpreter_exits(number: signal.Signals, code: int, message: str) -> None:
    program = """
import atexit, sys, time
from regard.cli import main

@atexit.register
def end():
    print("ending", flush=True)
    for _ in range(200):
        time.sleep(0.1)

sys.argv = ["regard", "--version"]
main()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("regard ")
        assert process.stdout.readline() == "ending\n"
        process.send_signal(number)
        assert process.wait(timeout=200) == code
        assert process.stderr.read() == message


def test_a_program_that_uses_regard_keeps_its_handlers() -> None:
    program = """
import signal
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
import regard, regard.cli.app, regard.cli.signals
regard.load
assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
own = lambda number, frame: print("own")
signal.signal(signal.SIGINT, own)
assert regard.cli.app.run(["--version"]) == 0
assert signal.getsignal(signal.SIGINT) is own
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
