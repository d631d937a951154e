"""A log that grows by lines of JSON, whatever ended the run before."""

from __future__ import annotations

import json
import time
from pathlib import Path

from regard.training.events import Events


def test_an_event_is_a_line_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    before = time.time()
    with Events(path) as log:
        written = log.add("step", number=3, loss=0.1, name="é")
        line = path.read_text(encoding="utf-8")
        assert line.endswith("\n") and json.loads(line) == written
        log.add("end")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["event"] for line in lines] == ["step", "end"]
    assert lines[0] | {"time": 0} == {"event": "step", "time": 0, "number": 3, "loss": 0.1, "name": "é"}
    assert before - 0.01 <= lines[0]["time"] <= time.time() + 0.01


def test_numbers_come_back_as_they_were(tmp_path: Path) -> None:
    path, number = tmp_path / "events.jsonl", 0.1 + 0.2
    with Events(path) as log:
        log.add("step", loss=number)
    assert json.loads(path.read_text())["loss"] == number


def test_a_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for name in ("a", "b"):
        with Events(path) as log:
            log.add(name)
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "a"}\n{"eve')
    with Events(path) as log:
        log.add("b")
    first, cut, last = path.read_text().splitlines()
    assert (json.loads(first)["event"], cut, json.loads(last)["event"]) == ("a", '{"eve', "b")
