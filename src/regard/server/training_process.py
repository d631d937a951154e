"""A training in a process of its own: it can be ended at any point, and its memory goes with it.

    python -m regard.server.training_process

Knows pipes and signals. The order comes as one line of JSON on standard input, which stays open as long as somebody
wants the training: where it ends, so does the training. What happens goes to standard output, a line of JSON each:
{"event": {...}}, and at last {"scores": {...}} or {"error": text}.
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

__all__ = ["run_in_process"]

GRACE = 5.0  # seconds between asking a process to end and ending it
ENDED = 143  # the exit code of one that was asked to


def run_in_process(job: TrainingJob) -> Mapping[str, float]:
    """Do what the job's order says, in a new process; the job is told how far it is. Gives the scores.

    RegardError where the training fails. Where the job is cancelled, the process ends within GRACE seconds.
    """
    # -P: a file of the user's, in the folder where the studio was started, must not be taken for a library.
    command = [sys.executable, "-P", "-m", "regard.server.training_process"]
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for the studio, which then ends the training
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        try:
            job.on_cancel(lambda: _end(process))
            with contextlib.suppress(BrokenPipeError):  # it has ended already, and says below why
                process.stdin.write(json.dumps(asdict(job.order)) + "\n")
                process.stdin.flush()
            for line in process.stdout:
                told = json.loads(line)
                if "event" in told:
                    job.hear(told["event"])
                elif "scores" in told:
                    return dict(told["scores"])
                else:
                    raise RegardError(told["error"])
            job.check()
            raise RegardError(f"the training's process ended with code {process.wait()}{_last_line(complaints)}")
        finally:
            job.on_cancel(None)
            _end(process)
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the process to end, and see to it that it does."""
    process.terminate()
    timer = threading.Timer(GRACE, process.kill)
    timer.daemon = True
    timer.start()


def _last_line(complaints: IO[bytes]) -> str:
    complaints.seek(0)
    lines = complaints.read().decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last[:300]}" if last else ""


def main() -> None:
    signal.signal(signal.SIGTERM, _unwind)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not come between the lines.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()

    def tell(**news: Any) -> None:
        print(json.dumps(news), file=lines, flush=True)

    try:
        from regard.server.training_jobs import TrainingRequest, train

        scores = train(TrainingRequest(**order), on_event=lambda event: tell(event=event.model_dump()))
        tell(scores=scores)
    except RegardError as error:
        tell(error=str(error))
    except Exception as error:
        tell(error=f"{type(error).__name__}: {error}")


def _unwind(number: int, frame: FrameType | None) -> None:
    raise SystemExit(ENDED)


def _end_with_input() -> None:
    """The studio holds the other end: when that is gone, however it ended, nobody wants the training any more."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE)
    os._exit(ENDED)


if __name__ == "__main__":
    main()
