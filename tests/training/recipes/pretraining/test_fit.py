"""Defaults on a CPU: sized for the device, the text and the budget, unless settings are given."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from regard.models.family import pretrainable_families
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.fit import THREAD_FLOPS, fit, text_bytes
from regard.training.recipes.pretraining.objectives import objective_class

FAMILIES = sorted(pretrainable_families())


def fitted(family: str, *settings: str, text: int = 400_000, threads: int = 2) -> PretrainingConfig:
    given = PretrainingConfig.read(family=family, overrides=["schedule.budget=60s", *settings])
    return fit(given, text=text, threads=threads)


def seconds(config: PretrainingConfig, threads: int = 2) -> float:
    """Of a step, at the speed that the fit assumes."""
    flops = objective_class(config).flops_per_token(config, config.vocabulary.vocab_size)
    return flops * config.data.tokens_per_batch / (threads * THREAD_FLOPS)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", [0, 400_000, 50_000_000, 10**10])
@pytest.mark.parametrize("budget", ["10s", "60s", "24h"])
def test_a_step_takes_at_most_a_second(family: str, text: int, budget: str) -> None:
    config = fitted(family, f"schedule.budget={budget}", text=text)
    assert seconds(config) <= 1
    assert config.data.tokens_per_batch >= config.data.max_length
    assert config.vocabulary.vocab_size <= 16384


@pytest.mark.parametrize("family", FAMILIES)
def test_more_text_and_time_give_a_larger_model(family: str) -> None:
    small, large = fitted(family), fitted(family, "schedule.budget=24h", text=10**9, threads=8)
    assert small.model.hidden_size <= 128 < large.model.hidden_size
    assert small.vocabulary.vocab_size < large.vocabulary.vocab_size
    assert fitted(family, text=10**9).model == small.model  # no time for more
    assert fitted(family, "schedule.budget=24h").model == small.model  # no text for more
    assert fitted(family, "schedule.budget=", "schedule.max_steps=86400", text=10**9, threads=8).model == large.model


@pytest.mark.parametrize(
    "given",
    [
        ["model.hidden_size=96", "model.num_attention_heads=3"],
        ["model.hidden_size=192"],
        ["model.num_attention_heads=6"],
        ["model.num_hidden_layers=9"],
        ["model.max_position_embeddings=1024", "data.max_length=1024"],
        ["data.max_length=64", "model.max_position_embeddings=64"],
        ["data.max_length=256"],
        ["data.tokens_per_batch=300"],
        ["data.tokens_per_micro_batch=32768"],
        ["vocabulary.vocab_size=777"],
        ["optimizer.name=adamw"],
    ],
)
def test_given_settings_win(given: list[str]) -> None:
    config = fitted("gpt", *given)
    for setting in given:
        name, _, value = setting.partition("=")
        section, key = name.split(".")
        assert str(getattr(getattr(config, section), key)) == value
    PretrainingConfig.model_validate(config.model_dump())


def test_given_cells_of_an_lstm_bound_its_outputs() -> None:
    config = fitted("elmo", "model.intermediate_size=768", "model.hidden_size=64")
    assert (config.model.hidden_size, config.model.intermediate_size) == (64, 768)
    config = fit(
        PretrainingConfig.read(family="elmo", overrides=["schedule.budget=1h", "model.intermediate_size=400"]),
        text=10**9,
        threads=64,
    )
    assert config.model.hidden_size <= 400
    PretrainingConfig.model_validate(config.model_dump())


def test_saved_settings_are_kept(tmp_path: Path) -> None:
    saved = fitted("bert")
    (tmp_path / "config.toml").write_bytes(saved.saved())
    again = PretrainingConfig.read(tmp_path / "config.toml", family="bert")
    assert fit(again, text=10**10, threads=64) == saved


def test_the_size_of_compressed_text_is_estimated(tmp_path: Path) -> None:
    text = "".join(f"Line {number} of a text.\n" for number in range(4000)).encode()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(text))
    assert text_bytes([str(tmp_path / "a.txt")]) == len(text)
    assert text_bytes([str(tmp_path / "b.txt.xz")]) > (tmp_path / "b.txt.xz").stat().st_size
