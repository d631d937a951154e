"""Runs a training job in a process of its own, which can be stopped at any point and frees its memory at the end.

    python -m regard.server.training_process

The request is one line of JSON on standard input, which stays open while the training is wanted: when it is closed, the
training ends. Standard output has one line of JSON per event: {"event": {...}}, and finally
{"scores": {...}} or {"error": text}.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.server.training_jobs import TrainingJob

GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
TERMINATED = 143  # exit code after SIGTERM


def run_in_process(job: TrainingJob) -> Mapping[str, float]:
    """Train in a new process, report progress to the job and return the scores.

    Raises RegardError when the training fails. When the job is cancelled, the process ends within GRACE_SECONDS.
    """
    # -P: a file in the current folder must not shadow a library.
    command = [sys.executable, "-P", "-m", "regard.server.training_process"]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C goes to the studio, which then stops the training
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        try:
            job.on_cancel(lambda: _terminate(process))
            with contextlib.suppress(BrokenPipeError):  # it has ended already; the reason is read below
                process.stdin.write(json.dumps(asdict(job.request)) + "\n")
                process.stdin.flush()
            for line in process.stdout:
                output = json.loads(line)
                if "event" in output:
                    job.on_event(output["event"])
                elif "scores" in output:
                    return dict(output["scores"])
                else:
                    raise RegardError(output["error"])
            job.check_cancelled()
            raise RegardError(f"the training process ended with code {process.wait()}{_last_line(errors)}")
        finally:
            job.on_cancel(None)
            _terminate(process)
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()


def _terminate(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM, and SIGKILL if the process does not end."""
    process.terminate()
    timer = threading.Timer(GRACE_SECONDS, process.kill)
    timer.daemon = True
    timer.start()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last[:300]}" if last else ""


def main() -> None:
    signal.signal(signal.SIGTERM, _raise_exit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output printed by libraries goes to standard error.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_when_input_closes, daemon=True).start()

    def send(**output: Any) -> None:
        print(json.dumps(output), file=lines, flush=True)

    try:
        from regard.server.training_jobs import TrainingRequest, train

        scores = train(
            TrainingRequest(**request),
            on_event=lambda event: send(event=event.model_dump()),
        )
        send(scores=scores)
    except RegardError as error:
        send(error=str(error))
    except Exception as error:
        send(error=f"{type(error).__name__}: {error}")


def _raise_exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


def _exit_when_input_closes() -> None:
    """The studio holds the other end of the pipe: however it ended, the training is no longer wanted."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    os._exit(TERMINATED)


if __name__ == "__main__":
    main()
