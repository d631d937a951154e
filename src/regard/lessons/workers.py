"""Training the models of the reversal lesson in several processes at a time.

    python -m regard.lessons.workers

is the program of such a process: it receives a task, and sends every epoch and then the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from regard.cancellation import check_cancelled
from regard.errors import InputError
from regard.lessons.reverse import ReverseEpoch
from regard.lessons.reverse_comparison import ReverseRun, ReverseTask, train_task
from regard.training.stopping import stopping
from regard.worker_process import WorkerFailure, WorkerProcess, take_pipes

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
    working: dict[Connection, tuple[int, WorkerProcess]] = {}
    runs: dict[int, ReverseRun] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                number = waiting.pop()
                with stopping() as stop:  # else a Ctrl-C could leave a process that nobody knows
                    worker = _start_process(tasks[number])
                    working[worker.receiver] = number, worker
                stop.deliver()
            for receiver in wait(list(working)):
                assert isinstance(receiver, Connection)
                check_cancelled()
                number, worker = working[receiver]
                message = worker.receive()
                if isinstance(message, WorkerFailure):
                    raise message.error()
                if isinstance(message, ReverseEpoch):
                    on_epoch(tasks[number], message)
                else:
                    runs[number] = message
                    del working[receiver]
                    worker.finish()
                    worker.kill()
                    on_run(message)
    finally:
        for _, worker in working.values():
            worker.kill()
    return [runs[number] for number in range(len(tasks))]


def _start_process(task: ReverseTask) -> WorkerProcess:
    worker = WorkerProcess(
        "regard.lessons.workers",
        name="a training process",
        advice="there may be too little memory: try fewer jobs at a time",
    )
    worker.send(task)
    return worker


def main() -> None:
    received, replies = take_pipes()
    task = received.recv()
    with suppress(BrokenPipeError):  # the process that started this one has ended
        try:
            replies.send(train_task(task, replies.send))
        except BrokenPipeError:
            raise
        except Exception as error:
            replies.send(WorkerFailure.of(error))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
