"""The program of a worker process, `python -m regard.data.corpus.worker`; `regard.data.corpus.workers` starts it.

Reads jobs from its standard input and writes their results to its standard output, both as pickled messages of the
process that started it. It ends when its standard input is closed, at the latest after the job at hand, so that no
worker outlives that process for long.
"""

from __future__ import annotations

import os
import signal
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from regard.data.corpus.encoder import CorpusEncoder
from regard.data.corpus.workers import JobFailure
from regard.errors import InputError, RegardError


def main() -> None:
    """Do jobs until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it handles Ctrl-C
    received, replies = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # whatever is printed goes to stderr
    state: dict[Path, CorpusEncoder] = {}
    while True:
        try:
            number, job = received.recv()
        except EOFError:
            return
        try:
            reply = job.run(state)
        except OSError as error:
            reply = JobFailure("os", error.strerror or str(error), errno=error.errno)
        except RegardError as error:
            reply = JobFailure("input" if isinstance(error, InputError) else "regard", str(error))
        except Exception as error:
            reply = JobFailure("bug", f"{type(error).__name__}: {error}", traceback.format_exc())
        try:
            replies.send((number, reply))
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
