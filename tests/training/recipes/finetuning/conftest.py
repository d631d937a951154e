"""Small datasets with simple rules, and a function that fine-tunes the tiny model on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.events import drain
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.report import FineTuningReport
from regard.training.recipes.finetuning.run import fine_tune

GOOD, BAD = ["good", "love", "funny"], ["bad", "dull", "no"]
FILLING = ["the", "film", "is", "so", "long", "and", "they", "see", "it", "now"]
SMALL = (
    "training.baseline=false",
    "training.num_epochs=3",
    "training.batch_size=8",
    "training.learning_rate=3e-3",
    "training.max_length=32",
)


def reviews(count: int, *, seed: int = 0) -> str:
    """Lines with a text, a tab and a label that depends on one of the words."""
    rng = random.Random(seed)
    lines = []
    for number in range(count):
        word = rng.choice((BAD, GOOD)[number % 2])
        words = [*rng.choices(FILLING, k=rng.randrange(3, 9)), word]
        rng.shuffle(words)
        lines.append(f"{' '.join(words)}\t{('neg', 'pos')[number % 2]}\n")
    return "".join(lines)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reviews")
    (folder / "train.tsv").write_text(reviews(96), encoding="utf-8")
    (folder / "dev.tsv").write_text(reviews(40, seed=1), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def report_every_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Report every training step as an event."""
    monkeypatch.setattr("regard.training.trainer.LOG_EVERY", 0.0)
    yield


@pytest.fixture
def tune(files: Path, tiny_bert_folder: Path, one_thread: None) -> Callable[..., FineTuningReport]:
    def run(output: Path, *settings: str, task: str = "classify", **options: Any) -> FineTuningReport:
        options = {"train": str(files / "train.tsv"), "dev": str(files / "dev.tsv"), **options}
        options.setdefault("model", str(tiny_bert_folder))
        train, dev = options.pop("train"), options.pop("dev")
        config = FineTuningConfig.load(overrides=[*SMALL, *settings])
        on_event = options.pop("on_event", None)
        events = fine_tune(task, train, dev, output=output, config=config, device=torch.device("cpu"), **options)
        return drain(events, on_event)

    return run
