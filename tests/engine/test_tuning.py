"""Settings of a CPU: measured once, kept, and measured again when they cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.engine import tuning
from regard.engine.tuning import DEFAULT_TOKENS, CpuSettings, cpu_settings, measure, stored_settings, use_threads
from regard.models import Bert, BertConfig

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def bert() -> Bert:
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return Bert(BertConfig(vocab_size=50, max_position_embeddings=64, **shape), output_heads=()).eval()


def test_small_jobs_are_not_measured(bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "measure", lambda *_: pytest.fail("measured"))
    with cpu_settings(CPU, bert, "fp32", work=100) as settings:
        assert settings == CpuSettings(torch.get_num_threads(), DEFAULT_TOKENS)


def test_measured_once(bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [CpuSettings(1, 512, 0.1), CpuSettings(1, 256, 0.2)]
    monkeypatch.setattr(tuning, "measure", lambda *_: found.pop(0))
    work = tuning.MIN_WORK
    with cpu_settings(CPU, bert, "fp32", work=work) as first, cpu_settings(CPU, bert, "fp32", work=1) as second:
        assert first == second == CpuSettings(1, 512, 0.1)
    assert stored_settings(bert, "int8", measured=True).tokens == 256  # each precision has its own
    assert not found


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 3}', '{"a": {"wrong": 1}}'])
def test_unreadable_settings_are_measured_again(bert: Bert, cache: Path, content: str) -> None:
    cache.mkdir()
    (cache / "cpu_settings.json").write_text(content)
    assert stored_settings(bert, "fp32", measured=False).tokens == DEFAULT_TOKENS
    assert stored_settings(bert, "fp32", measured=True).seconds > 0
    assert stored_settings(bert, "fp32", measured=False).seconds > 0


def test_a_folder_that_cannot_be_written(bert: Bert, cache: Path) -> None:
    cache.write_text("a file in place of the folder")
    assert stored_settings(bert, "fp32", measured=True).seconds > 0


def test_measurement(bert: Bert) -> None:
    found = measure([*bert.encoder.layers], torch.get_num_threads())
    assert found.tokens in tuning.CANDIDATES
    assert 0 < found.seconds < 1
    assert 1 <= found.threads <= torch.get_num_threads()


def test_models_without_layers_have_the_defaults() -> None:
    assert stored_settings(torch.nn.Linear(2, 2), "fp32", measured=True) == CpuSettings(
        torch.get_num_threads(), DEFAULT_TOKENS
    )


def test_threads_are_restored() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="inside"), use_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ValueError("inside")
    assert torch.get_num_threads() == before
