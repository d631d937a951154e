"""Settings of a run: defaults of each family, and invalid settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import InputError
from regard.training.recipes.translation.config import TranslationConfig

CONFIGS = Path(__file__).resolve().parents[4] / "configs"


def test_each_family_has_its_defaults(tmp_path: Path) -> None:
    assert (TranslationConfig.read().model.family, TranslationConfig.read().model.hidden_size) == ("transformer", 256)
    lstm = TranslationConfig.read(overrides=["model.family=lstm"])
    assert (lstm.model.hidden_size, lstm.model.num_hidden_layers, lstm.run.precision) == (512, 1, "fp32")
    assert TranslationConfig.read().run.precision == "auto"
    assert TranslationConfig.read(overrides=["model.family=lstm", "model.hidden_size=64"]).model.hidden_size == 64
    file = tmp_path / "c.toml"
    file.write_text(lstm.toml(), encoding="utf-8")
    assert TranslationConfig.read(file) == lstm


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.family=gru", r"unknown model\.family 'gru'; .*choices: lstm, transformer"),
        (
            "model.num_attention_heads=3",
            r"model\.num_attention_heads is 3, which does not divide model\.hidden_size, 256",
        ),
        ("training.label_smoothing=1.0", r"training\.label_smoothing is 1\.0; expected less than 1"),
        ("vocabulary.vocab_size=100", r"vocab_size: expected at least 260, .* and it is 100"),
        ("training.warmup_steps=0", r"training\.warmup_steps is 0"),
        ("training.num_beam=4", r"unknown key 'num_beam' in \[training\]; did you mean 'num_beams'"),
    ],
)
def test_invalid_settings_are_refused(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TranslationConfig.read(overrides=[setting])


def test_the_width_of_a_bidirectional_model_must_be_even() -> None:
    with pytest.raises(InputError, match="two directions share it"):
        TranslationConfig.read(overrides=["model.family=lstm", "model.hidden_size=33"])


@pytest.mark.parametrize("name", ["multi30k-transformer", "multi30k-lstm"])
def test_the_example_configurations_are_complete(name: str) -> None:
    found = TranslationConfig.read(CONFIGS / f"{name}.toml")
    assert found.model.family == name.removeprefix("multi30k-")
