"""A process that works for this one: how it is started, what is sent and received, how it ends, and how it died.

A worker is a program of its own (`python -m MODULE`), so a script of the user is not run a second time. Messages are
pickled, and only those of a worker that this process has started, over its own pipes, are unpickled. The processes of
served models start and end in the same way (`start_process`, `describe_exit`), but have frames of plain values on a
socket, because they also read what clients sent. Files and templates of strangers are tested by programs that import
nothing of Regard (`text/guard.py`), which need none of this.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO, Any, Literal

from regard.errors import OUT_OF_MEMORY, InputError, RegardError, is_out_of_memory

WAIT = 10.0  # seconds for a worker to end before it is killed


class WorkerDied(RegardError):
    """A worker has ended before it was told to."""


@dataclass(frozen=True)
class WorkerFailure:
    """An exception in a worker."""

    kind: Literal["input", "regard", "os", "bug"]
    message: str
    traceback: str = ""
    errno: int | None = None

    @staticmethod
    def of(error: Exception) -> WorkerFailure:
        match error:
            case InputError():
                return WorkerFailure("input", str(error))
            case RegardError():
                return WorkerFailure("regard", str(error))
            case _ if is_out_of_memory(error):
                return WorkerFailure("regard", OUT_OF_MEMORY)
            case OSError(errno=int()):
                return WorkerFailure("os", error.strerror or str(error), errno=error.errno)
        return WorkerFailure("bug", f"{type(error).__name__}: {error}", traceback.format_exc())

    def error(self) -> Exception:
        """The exception for the user, with the same message as in one process."""
        match self.kind:
            case "input":
                return InputError(self.message)
            case "regard":
                return RegardError(self.message)
            case "os":
                return OSError(self.errno, self.message)
        error = RuntimeError(self.message)
        error.add_note(self.traceback)
        return error


class WorkerProcess:
    """A process that runs `module`.

    `name` and `advice` are for errors: "NAME ended unexpectedly (SIGKILL); ADVICE". `errors` gets its standard error.
    """

    def __init__(
        self,
        module: str,
        *,
        name: str,
        advice: str,
        environment: Mapping[str, str] | None = None,
        errors: IO[bytes] | None = None,
    ) -> None:
        self._name, self._advice = name, advice
        self.process = start_process(module, environment=environment, stdout=subprocess.PIPE, stderr=errors)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._sender = Connection(os.dup(self.process.stdin.fileno()), readable=False)
        self.receiver = Connection(os.dup(self.process.stdout.fileno()), writable=False)
        self.process.stdin.close()
        self.process.stdout.close()

    def send(self, message: object) -> None:
        try:
            self._sender.send(message)
        except OSError:
            raise self._died() from None

    def receive(self) -> Any:
        """The next message of the worker."""
        try:
            return self.receiver.recv()
        except (EOFError, OSError):
            raise self._died() from None

    def finish(self) -> None:
        """Let the worker end, and wait for it."""
        self._sender.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(WAIT)

    def terminate(self, seconds: float) -> None:
        """Ask the worker to end (SIGTERM), and end it if it has not after some seconds."""
        self.process.terminate()
        timer = threading.Timer(seconds, self.process.kill)
        timer.daemon = True
        timer.start()

    def kill(self) -> None:
        """End the worker now, if it is still running."""
        self._sender.close()
        self.receiver.close()
        self.process.kill()
        self.process.wait()

    def _died(self) -> WorkerDied:
        try:
            code = self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            code = 0
        return WorkerDied(f"{self._name} ended unexpectedly ({describe_exit(code)}); {self._advice}")


def start_process(
    module: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.PIPE,
    stdout: int | None = None,
    stderr: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a worker; `environment` has additional variables. Ctrl-C in a terminal does not reach it."""
    # It imports the same modules as this process, and -P keeps those of the current folder out.
    path = os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry))
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            bufsize=0,
            env={**os.environ, **(environment or {}), "PYTHONPATH": path},
            process_group=0,
        )
    except OSError as error:
        raise RegardError(
            f"a worker process could not be started ({error.strerror or error}); end other processes, or use fewer "
            "workers or devices"
        ) from error


def describe_exit(code: int) -> str:
    """How a process ended: the name of the signal that ended it, or its exit code."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def take_pipes() -> tuple[Connection, Connection]:
    """In a worker: the pipes for messages. Whatever else reads from standard input finds nothing, and prints go to
    stderr. Ctrl-C is ignored: the process that started this one handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    received, replies = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return received, replies
