"""What is told of the time that a run still takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.training.pretraining import plan
from regard.training.pretraining import reporter as reporting
from regard.training.pretraining.reporter import seconds_left
from regard.training.pretraining.run import pretrain
from regard.training.pretraining.sections import ScheduleSection
from tests.training.pretraining.runs import config, events, story


def test_a_budget_says_what_is_left_of_it() -> None:
    budget = ScheduleSection(budget="25s")
    for steps, seconds, left in ((1, 3.5, 21.5), (2, 3.5, 21.5), (900, 24.0, 1.0), (900, 25.0, 0.0), (901, 31.0, 0.0)):
        assert seconds_left(budget, steps=steps, seconds=seconds) == left


def test_steps_go_on_as_fast_as_before() -> None:
    schedule = ScheduleSection(max_steps=10)
    for steps, seconds, left in ((1, 2.0, 18.0), (4, 8.0, 12.0), (9, 9.0, 1.0), (10, 10.0, 0.0)):
        assert seconds_left(schedule, steps=steps, seconds=seconds) == pytest.approx(left)


def test_a_run_never_has_more_left_than_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SECONDS", 0.0)
    monkeypatch.setattr(reporting, "LOG_EVERY", 0.0)
    monkeypatch.setitem(plan.SIDE, "cpu", 64)
    (tmp_path / "story.txt").write_text(story(), encoding="utf-8")
    settings = config("elmo", schedule_max_steps=0, schedule_budget="0.5s", run_checkpoint_every="")
    pretrain(settings, [str(tmp_path / "story.txt")], tmp_path / "run", device=torch.device("cpu"))
    told = events(tmp_path / "run", "step")
    assert told and all(event["left"] == pytest.approx(max(0.5 - event["seconds"], 0.0)) for event in told)
