"""Fixtures for complete runs: a text, its corpus, and a launcher of processes that can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.data.corpus import build_corpus, train_tokenizer
from regard.training import speed, trainer
from tests.training.recipes.pretraining.runs import SMALL, Launcher, story


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file."""
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_text(story(), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another text of the same kind, to evaluate on."""
    path = tmp_path_factory.mktemp("text") / "unseen.txt"
    path.write_text(story(30, seed=1), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def corpus(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished corpus, so that runs start immediately."""
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    lines = source.read_text(encoding="utf-8").splitlines()
    tokenizer = train_tokenizer(
        lines, size=int(SMALL["vocabulary.vocab_size"]), max_length=int(SMALL["model.max_position_embeddings"])
    )
    build_corpus(source, folder, tokenizer=tokenizer)
    return folder


@pytest.fixture
def fast_run_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: shorten the measurements before a run and log every step."""
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    monkeypatch.setitem(speed.SIDE, "cpu", 64)
    monkeypatch.setattr(trainer, "LOG_EVERY", 0.0)


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path_factory.mktemp("printed"), "torch.distributed.fsdp")
    yield launcher
    launcher.close()
