"""Scores on few examples are told as a number of correct answers, in the terminal, the report and the studio."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.server.studio.training import CurvePoint, TrainingJob
from regard.training.events import FEW_EXAMPLES, Evaluated, count_correct, describe_scores
from regard.training.recipes.finetuning.report import FineTuningReport, SeedResult
from regard.verbs.train import train

SCORES = {"accuracy": 100 * 5 / 6, "f1": 82.9, "mcc": 70.7}


def test_few_examples_are_counted() -> None:
    assert describe_scores(SCORES, 6) == ["5 of 6 correct"]
    assert describe_scores(SCORES, FEW_EXAMPLES + 1)[0] == "accuracy 83.33"
    assert count_correct({"f1": 90.0}, 6) is None and count_correct(SCORES, None) is None
    event = Evaluated(epoch=2, seconds=1.0, scores=SCORES, train_loss=0.5, examples=6)
    assert all(part in event.line() for part in ("epoch 2 ", "5 of 6 correct", "train loss 0.500"))


@pytest.mark.parametrize(("examples", "expected"), [(6, "5 of 6 correct"), (600, "accuracy             83.33")])
def test_the_report(examples: int, expected: str) -> None:
    report = FineTuningReport(
        output="",
        task="classify",
        model="tiny",
        score="accuracy",
        data={"dev": {"examples": examples, "path": "dev.tsv"}},
        settings={},
        mean=SCORES,
        deviation=dict.fromkeys(SCORES, 0.0),
        best_seed=0,
        seeds=[SeedResult(seed=0, scores=SCORES, epoch=1, seconds=1.0, steps=3)],
    )
    assert report.to_text().splitlines()[1] == expected


def test_the_studio_counts_and_collects_the_curve(tmp_path: Path) -> None:
    arguments = {"task": "classify", "train": "x.tsv", "output": str(tmp_path), "settings": ["training.num_epochs=2"]}
    job = TrainingJob(train.parse(arguments))  # type: ignore[arg-type]
    step = {"type": "step", "seconds": 1.0, "seconds_left": 1.0, "steps": 8, "epoch": 1}
    for number, loss in ((1, 0.9), (3, 0.7), (4, 0.6)):
        job.on_event({**step, "step": number, "loss": loss})
    job.on_event({"type": "evaluation", "epoch": 1, "scores": SCORES, "train_loss": 0.75, "examples": 6})
    assert job.status().messages == ["epoch 1: 5 of 6 correct"]
    assert [point.step for point in job.status().curve] == [1, 3, 4]
    assert job.status().curve[-1] == CurvePoint(step=4, loss=0.75, score=SCORES["accuracy"])
