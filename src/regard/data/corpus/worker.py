"""The program of a worker process, `python -m regard.data.corpus.worker`; `regard.data.corpus.workers` starts it.

Reads jobs from its standard input and writes their results to its standard output, both as pickled messages of the
process that started it. It ends when its standard input is closed, at the latest after the job at hand, so that no
worker outlives that process for long.
"""

from __future__ import annotations

from regard.data.corpus.workers import WorkerState
from regard.worker_process import WorkerFailure, take_pipes


def main() -> None:
    """Do jobs until the standard input ends."""
    received, replies = take_pipes()
    state = WorkerState()
    while True:
        try:
            number, job = received.recv()
        except EOFError:
            return
        try:
            reply = job.run(state)
        except Exception as error:
            reply = WorkerFailure.of(error)
        try:
            replies.send((number, reply))
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
