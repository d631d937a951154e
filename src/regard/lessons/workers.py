"""Training the models of the reversal lesson in several processes at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from regard.cancellation import check_cancelled
from regard.errors import InputError
from regard.lessons.reverse import ReverseEpoch
from regard.lessons.reverse_comparison import ReverseRun, ReverseTask, train_task
from regard.training.stopping import stopping
from regard.worker_pool import Work, WorkerPool

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
    runs: dict[int, ReverseRun] = {}
    advice = "there may be too little memory: try fewer jobs at a time"
    with ExitStack() as stack:
        with stopping() as stop:  # else a Ctrl-C could leave a process that nobody knows
            pool = stack.enter_context(WorkerPool([("a training process", _load)] * jobs, advice=advice))
        stop.deliver()
        # Longest first, so that none is left alone at the end.
        order = sorted(range(len(tasks)), key=lambda number: -tasks[number].config.steps)
        for number, reply in pool.run((number, tasks[number]) for number in order):
            check_cancelled()
            if isinstance(reply, ReverseEpoch):
                on_epoch(tasks[number], reply)
            elif reply is not None:
                runs[number] = reply
                on_run(reply)
    return [runs[number] for number in range(len(tasks))]


def _load() -> Work:
    return lambda task, reply: reply(train_task(task, reply))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
