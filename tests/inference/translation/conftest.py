"""A toy language of thirteen words, a tiny translator for it, and a function to train others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.data.readers import ExampleSet
from regard.data.translation_pairs import TranslationPair
from regard.events import drain
from regard.training.recipes.translation.config import TranslationConfig
from regard.training.recipes.translation.recipe import TranslationReport, train_translator

WORDS = {
    "the": "der",
    "a": "ein",
    "dog": "Hund",
    "cat": "Katze",
    "house": "Haus",
    "red": "rot",
    "green": "grün",
    "big": "groß",
    "small": "klein",
    "runs": "rennt",
    "sleeps": "schläft",
    "sees": "sieht",
    "eats": "isst",
}
SMALL = (
    "vocabulary.vocab_size=300",
    "model.hidden_size=16",
    "model.num_hidden_layers=1",
    "model.num_attention_heads=2",
    "model.intermediate_size=32",
    "model.embedding_size=16",
    "model.dropout=0.1",
    "training.num_epochs=3",
    "training.tokens_per_batch=200",
    "training.warmup_steps=5",
    "training.learning_rate=5e-3",
    "training.average_epochs=2",
)


def sentences(count: int, *, seed: int = 0) -> list[TranslationPair]:
    """Sentence pairs translated word for word, in the same order."""
    rng = random.Random(seed)
    found: dict[TranslationPair, None] = {}
    while len(found) < count:
        words = rng.choices(list(WORDS), k=rng.randrange(2, 6))
        found[TranslationPair(" ".join(words), " ".join(WORDS[word] for word in words))] = None
    return list(found)


@pytest.fixture(scope="session")
def data() -> dict[str, ExampleSet[TranslationPair]]:
    pairs = sentences(90)
    return {"train": ExampleSet(pairs[:80], "train", "generated"), "dev": ExampleSet(pairs[80:], "dev", "generated")}


@pytest.fixture(autouse=True)
def report_every_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Report every training step as an event."""
    monkeypatch.setattr("regard.training.trainer.LOG_EVERY", 0.0)
    yield


Tune = Callable[..., TranslationReport]


@pytest.fixture(scope="session")
def tune(data: dict[str, ExampleSet[TranslationPair]], one_thread: None) -> Tune:
    def run(output: Path, *settings: str, **options: Any) -> TranslationReport:
        config = TranslationConfig.read(overrides=[*SMALL, *settings])
        options = {**data, **options}
        train, dev = options.pop("train"), options.pop("dev")
        on_event = options.pop("on_event", None)
        events = train_translator(train, dev, output=output, config=config, device=torch.device("cpu"), **options)
        return drain(events, on_event)

    return run


@pytest.fixture(scope="session")
def folders(tune: Tune, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A translator of each family, trained only briefly."""
    root = tmp_path_factory.mktemp("translators")
    tune(root / "transformer", "model.num_hidden_layers=2")
    tune(root / "lstm", "model.family=lstm")
    return {name: root / name for name in ("transformer", "lstm")}
