"""Several processes that do jobs for this one, for the length of a `with` block; none is left behind, however it ends.

    python -m regard.worker_pool

is the program of such a process. It gets a function that loads what the jobs need (a model, say), then the jobs, and
sends what they reply, all as pickled messages. It ends as soon as its standard input is closed, whatever it is doing,
so that it does not outlive the process that started it.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from regard.worker_process import WorkerFailure, WorkerProcess, take_pipes

Work = Callable[[Any, Callable[[Any], None]], None]  # does a job, and calls its second argument with each reply
Load = Callable[[], Work]  # it is pickled, and called in the worker


class WorkerPool:
    """A process for each of `workers`: its name for errors, and what loads. `WorkerProcess` explains `options`.

    A process has at most `in_flight` jobs at a time: the one that it does, and the next.
    """

    def __init__(self, workers: Sequence[tuple[str, Load]], *, in_flight: int = 1, **options: Any) -> None:
        self._planned, self._in_flight, self._options = workers, in_flight, options
        self._workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        try:
            for name, load in self._planned:
                self._workers.append(WorkerProcess("regard.worker_pool", name=name, **self._options))
                self._workers[-1].send(load)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is None:
            for worker in self._workers:
                worker.finish()
        self._kill()

    def run(self, jobs: Iterable[tuple[int, Any]]) -> Generator[tuple[int, Any]]:
        """Do numbered jobs: yields the number of a job with each of its replies, and with None when it is done.

        Replies of one job come in order, jobs in any order. If jobs have errors, that of the first one is raised, as in
        a single process.
        """
        waiting, failures = iter(jobs), dict[int, WorkerFailure]()
        unfinished: dict[WorkerProcess, list[int]] = {worker: [] for worker in self._workers}

        def send_next(worker: WorkerProcess) -> None:
            job = None if failures else next(waiting, None)
            if job is not None:
                unfinished[worker].append(job[0])
                worker.send(job)

        for worker in self._workers * self._in_flight:
            send_next(worker)
        # After a failure only jobs before it matter.
        while any(number < min(failures, default=number + 1) for numbers in unfinished.values() for number in numbers):
            ready = wait([worker.receiver for worker, numbers in unfinished.items() if numbers])
            for worker in [worker for worker in self._workers if worker.receiver in ready]:
                number, reply = worker.receive()
                if number is None:
                    raise reply.error()
                if isinstance(reply, WorkerFailure):
                    failures[number] = reply
                if reply is None or isinstance(reply, WorkerFailure):
                    unfinished[worker].remove(number)
                    send_next(worker)
                if not isinstance(reply, WorkerFailure):
                    yield number, reply
        if failures:
            raise failures[min(failures)].error()

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


def main() -> None:
    """Do jobs until the standard input ends."""
    received, replies = take_pipes()
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(received, messages), daemon=True).start()
    try:
        work = pickle.loads(messages.get())()
        while True:
            number, job = pickle.loads(messages.get())
            try:
                work(job, lambda reply, number=number: replies.send((number, reply)))
                replies.send((number, None))
            except BrokenPipeError:
                raise
            except Exception as error:
                replies.send((number, WorkerFailure.of(error)))
    except BrokenPipeError:  # nobody reads the replies any more
        os._exit(1)
    except Exception as error:  # what the jobs need could not be loaded
        replies.send((None, WorkerFailure.of(error)))


def _receive(received: Connection, messages: SimpleQueue[bytes]) -> None:
    """Take messages off the pipe at once, so that their sender never waits for a computation."""
    while True:
        try:
            messages.put(received.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


if __name__ == "__main__":
    main()
