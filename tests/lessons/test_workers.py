"""Training in several processes: the same results, and no process is left behind."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

from regard.errors import InputError, RegardError
from regard.lessons.reverse import ReverseEpoch
from regard.lessons.reverse_comparison import ReverseConfig, ReverseRun, ReverseTask, plan_tasks
from regard.lessons.workers import train_all
from regard.worker_process import WorkerProcess

SMALL = ReverseConfig(steps=3, features=5, units=6, train_size=60, test_size=12, epochs=2)


def ignore(*arguments: object) -> None:
    pass


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[WorkerProcess]:
    """The processes that were started."""
    started: list[WorkerProcess] = []
    plain = WorkerProcess.__init__

    def start(worker: WorkerProcess, *arguments: Any, **named: Any) -> None:
        plain(worker, *arguments, **named)
        started.append(worker)

    monkeypatch.setattr(WorkerProcess, "__init__", start)
    return started


def running(processes: list[WorkerProcess]) -> int:
    return sum(worker.process.poll() is None for worker in processes)


@pytest.mark.long
def test_the_result_does_not_depend_on_the_number_of_processes(processes: list[WorkerProcess]) -> None:
    tasks = plan_tasks(SMALL, [])[:2]
    epochs: dict[int, list[tuple[str, int]]] = {}
    ends: dict[int, list[str]] = {}
    results: dict[int, list[ReverseRun]] = {}
    for jobs in (1, 2):
        numbers, over = epochs.setdefault(jobs, []), ends.setdefault(jobs, [])
        results[jobs] = train_all(
            tasks,
            jobs=jobs,
            on_epoch=lambda task, epoch, numbers=numbers: numbers.append((task.name, epoch.number)),  # type: ignore[misc]
            on_run=lambda run, over=over: over.append(run.task.name),  # type: ignore[misc]
        )
    assert [replace(run, seconds=0) for run in results[1]] == [replace(run, seconds=0) for run in results[2]]
    assert [run.task for run in results[2]] == tasks
    assert sorted(epochs[1]) == sorted(epochs[2]) == sorted((task.name, n) for task in tasks for n in (1, 2))
    assert ends[1] == [task.name for task in tasks]
    assert sorted(ends[2]) == sorted(ends[1])
    assert len(processes) == 2 and running(processes) == 0


def test_an_error_during_training_ends_all_processes(processes: list[WorkerProcess]) -> None:
    def stop(task: ReverseTask, epoch: ReverseEpoch) -> None:
        assert running(processes) == 2
        raise KeyboardInterrupt

    tasks = [ReverseTask("none", "luong", replace(SMALL, epochs=10**6))] * 3
    with pytest.raises(KeyboardInterrupt):
        train_all(tasks, jobs=2, on_epoch=stop, on_run=ignore)
    assert processes and running(processes) == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_while_a_process_starts_is_not_lost(
    when: str, default_sigint: None, processes: list[WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = WorkerProcess.__init__

    def start(worker: WorkerProcess, *arguments: Any, **named: Any) -> None:
        first = not processes
        if first and when == "before":
            signal.raise_signal(signal.SIGINT)
        plain(worker, *arguments, **named)
        if first and when == "after":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(WorkerProcess, "__init__", start)
    tasks = [ReverseTask("none", "luong", replace(SMALL, epochs=10**6))] * 2
    with pytest.raises(KeyboardInterrupt):
        train_all(tasks, jobs=2, on_epoch=lambda task, epoch: pytest.fail("it went on"), on_run=ignore)
    assert processes and running(processes) == 0


def test_an_error_in_a_process_is_raised_in_the_parent() -> None:
    impossible = ReverseTask("wrong", "luong", SMALL)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown score 'wrong'"):
        train_all([impossible] * 2, jobs=2, on_epoch=ignore, on_run=ignore)


def test_a_process_that_dies_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = WorkerProcess.__init__

    def killed(worker: WorkerProcess, *arguments: Any, **named: Any) -> None:
        plain(worker, *arguments, **named)
        worker.process.kill()

    monkeypatch.setattr(WorkerProcess, "__init__", killed)
    with pytest.raises(RegardError, match=r"ended unexpectedly \(SIGKILL\)"):
        train_all([ReverseTask("none", "luong", SMALL)] * 2, jobs=2, on_epoch=ignore, on_run=ignore)


def test_zero_jobs_raise() -> None:
    with pytest.raises(InputError, match="jobs must be at least 1, not 0"):
        train_all(plan_tasks(SMALL, []), jobs=0, on_epoch=ignore, on_run=ignore)
