"""The estimated remaining time of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.events import drain
from regard.training import speed
from regard.training import trainer as reporting
from regard.training.recipes.pretraining.run import pretrain
from tests.training.recipes.pretraining.runs import config, events, ignore_preparation, story


def test_a_run_never_has_more_left_than_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_preparation(monkeypatch)
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    monkeypatch.setattr(reporting, "LOG_EVERY", 0.0)
    monkeypatch.setitem(speed.SIDE, "cpu", 64)
    (tmp_path / "story.txt").write_text(story(), encoding="utf-8")
    settings = config("elmo", schedule_max_steps=0, schedule_budget="0.5s", run_checkpoint_every="")
    drain(pretrain(settings, [str(tmp_path / "story.txt")], tmp_path / "run", device=torch.device("cpu")))
    steps = events(tmp_path / "run", "step")
    assert steps and all(event["seconds_left"] == pytest.approx(max(0.5 - event["seconds"], 0.0)) for event in steps)
