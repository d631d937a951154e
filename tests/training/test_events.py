"""A log of JSON lines that can be appended to, however the previous run ended."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

from regard.events import Note
from regard.training.events import Finished, StepFinished
from regard.training.run_folder import EventLog


def test_an_event_is_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    before = time.time()
    with closing(EventLog(path)) as log:
        log.add(Note(message="é"))
        line = path.read_text(encoding="utf-8")
        assert line.endswith("\n") and json.loads(line)["message"] == "é"
        log.add(Finished(scores={"f1": 0.1}))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["type"] for line in lines] == ["note", "finished"]
    assert lines[1] | {"time": 0} == {"type": "finished", "time": 0, "scores": {"f1": 0.1}}
    assert before - 0.01 <= lines[0]["time"] <= time.time() + 0.01


def test_numbers_are_read_back_exactly(tmp_path: Path) -> None:
    path, number = tmp_path / "events.jsonl", 0.1 + 0.2
    with closing(EventLog(path)) as log:
        log.add(StepFinished(step=1, seconds=1.0, loss=number, learning_rate=0.1, progress=0.5, seconds_left=1.0))
    assert json.loads(path.read_text())["loss"] == number


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for name in ("a", "b"):
        with closing(EventLog(path)) as log:
            log.add(Note(message=name))
    assert [json.loads(line)["message"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_a_truncated_line_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"type": "a"}\n{"typ')
    with closing(EventLog(path)) as log:
        log.add(Note(message="b"))
    first, cut, last = path.read_text().splitlines()
    assert (json.loads(first)["type"], cut, json.loads(last)["message"]) == ("a", '{"typ', "b")
