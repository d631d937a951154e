"""A long job prints something at least every ten seconds."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from regard.cli import commands, output
from regard.events import Event, Note, Progress
from tests.heartbeat import without_heartbeat

INTERVALS = output.HEARTBEAT, output.STATUS_EVERY  # a fixture of all tests makes them long


def test_the_intervals_are_at_most_ten_seconds() -> None:
    assert max(INTERVALS) <= 10 < output.HEARTBEAT


@pytest.mark.parametrize("first", [None, Note(message="reading"), Progress(stage="reading", done=3, total=9)])
def test_a_silent_job_is_reported(first: Event | None, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    printed = threading.Event()

    def note(line: str) -> None:
        lines.append(line)
        if "so far" in line:
            printed.set()

    for module in (commands, output):
        monkeypatch.setattr(module, "note", note)
    monkeypatch.setattr(output, "HEARTBEAT", 0.01)

    def job() -> Generator[Event, None, Any]:
        if first is not None:
            yield first
        assert printed.wait(60)  # nothing more happens until the report
        return "done"

    before = threading.active_count()
    assert commands.render_events(job()) == "done"  # type: ignore[comparison-overlap]
    assert threading.active_count() == before
    report = next(line for line in lines if "so far" in line)
    assert ("reading" in report) == (first is not None)
    assert without_heartbeat(f"before\n{report}\nafter\n") == "before\nafter\n"


def test_no_report_if_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "HEARTBEAT", 0.0)
    before = threading.active_count()
    threads: list[int] = []

    def job() -> Generator[Event, None, Any]:
        yield Note(message="reading")
        threads.append(threading.active_count())
        return "done"

    commands.render_events(job(), heartbeat=False)
    assert threads == [before]


def test_of_several_processes_the_main_one_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "HEARTBEAT", 0.01)
    monkeypatch.setenv("RANK", "1")

    def job() -> Generator[Event, None, Any]:
        assert "heartbeat" not in [thread.name for thread in threading.enumerate()]
        return "done"
        yield

    assert commands.render_events(job()) == "done"  # type: ignore[comparison-overlap]
