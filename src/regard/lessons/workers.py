"""Training the models of the reversal lesson in several processes at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from regard.cancellation import check_cancelled
from regard.errors import InputError, RegardError
from regard.lessons.reverse import ReverseEpoch
from regard.lessons.reverse_comparison import ReverseRun, ReverseTask, train_task
from regard.training.stopping import stopping

OnEpoch = Callable[[ReverseTask, ReverseEpoch], None]
OnRun = Callable[[ReverseRun], None]


def train_all(
    tasks: Sequence[ReverseTask], *, jobs: int | None = None, on_epoch: OnEpoch, on_run: OnRun
) -> list[ReverseRun]:
    """Train all tasks, `jobs` at a time (by default one per available core), and return the runs in order.

    An error or Ctrl-C leaves no process behind.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be at least 1, not {jobs}")
    jobs = min(_cores() if jobs is None else jobs, len(tasks))
    if jobs > 1:
        return _train_in_processes(tasks, jobs, on_epoch, on_run)
    runs = []
    for task in tasks:
        runs.append(train_task(task, lambda epoch, task=task: on_epoch(task, epoch)))  # type: ignore[misc]
        on_run(runs[-1])
    return runs


def _train_in_processes(tasks: Sequence[ReverseTask], jobs: int, on_epoch: OnEpoch, on_run: OnRun) -> list[ReverseRun]:
    # Longest first, so that none is left alone at the end.
    waiting = sorted(range(len(tasks)), key=lambda number: tasks[number].config.steps)
    working: dict[Connection, tuple[int, BaseProcess]] = {}
    runs: dict[int, ReverseRun] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                number = waiting.pop()
                with stopping() as stop, _interrupts_blocked():
                    ours, process = _start_process(tasks[number])
                    working[ours] = number, process
                stop.deliver()
            for connection in wait(list(working)):
                assert isinstance(connection, Connection)
                check_cancelled()
                number, process = working[connection]
                message = _receive(connection, process)
                if isinstance(message, ReverseEpoch):
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


def _start_process(task: ReverseTask) -> tuple[Connection, BaseProcess]:
    """Start a process for the task; the connection receives its messages."""
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads in an unknown state
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _work(task: ReverseTask, connection: Connection) -> None:
    """Send every epoch and then the run, or the error that ended it."""
    with suppress(BrokenPipeError):  # the parent process has ended
        try:
            connection.send(train_task(task, connection.send))
        except BrokenPipeError:
            raise
        except Exception as error:
            connection.send(error)


def _receive(connection: Connection, process: BaseProcess) -> ReverseEpoch | ReverseRun:
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
    assert isinstance(message, ReverseEpoch | ReverseRun)
    return message


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start child processes with SIGINT blocked: a terminal sends Ctrl-C to all, and the parent ends its children.

    They inherit the signal mask of this thread. Here a Ctrl-C is delivered at the end; ignoring it would lose it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # The first process also starts the resource tracker, and that unblocks SIGINT: start it before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
