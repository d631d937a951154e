"""Several trainings at once, each in a process of its own with one thread.

Knows processes, pipes and signals, and a lesson's tasks by what goes in and comes out. The result is the same whatever
the number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from regard.errors import InputError, RegardError
from regard.lessons.compare import Run, Task, train_task
from regard.lessons.reverse import Epoch
from regard.training.stopping import stopping

__all__ = ["train_all"]

OnEpoch = Callable[[Task, Epoch], None]
OnRun = Callable[[Run], None]


def train_all(tasks: Sequence[Task], *, jobs: int | None = None, on_epoch: OnEpoch, on_run: OnRun) -> list[Run]:
    """The runs of the tasks, in their order; `jobs` at a time, by default one for each core this process may use.

    Whatever ends it early, an error or Ctrl-C, no process is left behind.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be at least 1, not {jobs}")
    jobs = min(_cores() if jobs is None else jobs, len(tasks))
    if jobs > 1:
        return _train_apart(tasks, jobs, on_epoch, on_run)
    runs = []
    for task in tasks:
        runs.append(train_task(task, lambda epoch, task=task: on_epoch(task, epoch)))  # type: ignore[misc]
        on_run(runs[-1])
    return runs


def _train_apart(tasks: Sequence[Task], jobs: int, on_epoch: OnEpoch, on_run: OnRun) -> list[Run]:
    # The dearest first, so that no long one is left alone at the end.
    waiting = sorted(range(len(tasks)), key=lambda number: tasks[number].setting.steps)
    working: dict[Connection, tuple[int, BaseProcess]] = {}
    runs: dict[int, Run] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                number = waiting.pop()
                with stopping() as stop, _interrupts_blocked():
                    ours, process = _begin(tasks[number])
                    working[ours] = number, process
                stop.deliver()
            for connection in wait(list(working)):
                assert isinstance(connection, Connection)
                number, process = working[connection]
                message = _received(connection, process)
                if isinstance(message, Epoch):
                    on_epoch(tasks[number], message)
                else:
                    runs[number] = message
                    del working[connection]
                    process.join()
                    connection.close()
                    on_run(message)
    finally:
        for connection, (_, process) in working.items():
            process.terminate()
            process.join()
            connection.close()
    return [runs[number] for number in range(len(tasks))]


def _begin(task: Task) -> tuple[Connection, BaseProcess]:
    """Start a process for the task; what it has to tell comes out of the connection."""
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads in an unknown state
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _work(task: Task, connection: Connection) -> None:
    """The life of a process: every epoch and then the run go into the connection, or the error that ended it."""
    with suppress(BrokenPipeError):  # the parent is gone, and nobody waits for the rest
        try:
            connection.send(train_task(task, connection.send))
        except BrokenPipeError:
            raise
        except Exception as error:
            connection.send(error)


def _received(connection: Connection, process: BaseProcess) -> Epoch | Run:
    try:
        message = connection.recv()
    except EOFError:
        process.join()
        raise RegardError(
            f"a training process ended unexpectedly (exit code {process.exitcode}); there may be too little memory: "
            "try fewer jobs at a time"
        ) from None
    if isinstance(message, Exception):
        raise message
    assert isinstance(message, Epoch | Run)
    return message


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process started inside never sees Ctrl-C, which a terminal sends to all: ending it is the parent's affair.

    It inherits the signal mask of this thread. Here a Ctrl-C arrives at the end; if it were ignored, it would be lost.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
