"""The pretraining speed benchmark: both implementations have the same shape and train; figures follow from time."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks import pretrain_speed, timing
from benchmarks.pretrain_speed import (
    SETUPS,
    compare,
    create_trainer,
    main,
    open_corpus,
    regard_step,
    seconds_per_step,
    setup_config,
    transformers_step,
)
from regard.nn.attention import Attention
from regard.nn.training import Dropout
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.objectives import objective_class
from regard.training.trainer import Trainer

CPU = torch.device("cpu")
VOCABULARY = 300


@pytest.fixture(params=["bert128", "gpt2"])
def config(request: pytest.FixtureRequest) -> PretrainingConfig:
    return setup_config(SETUPS[request.param], tiny=True)


@pytest.fixture
def run(config: PretrainingConfig, corpus_folder: Path) -> Trainer:
    return create_trainer(config, open_corpus(config, str(corpus_folder)), CPU)


class Fake(nn.Module):
    """Replaces the peer model and stores its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.given: dict[str, Tensor] = {}

    def forward(self, **inputs: Tensor) -> Any:
        self.given = inputs
        return type("Output", (), {"loss": (self.weight**2).sum()})


@pytest.mark.parametrize(
    ("name", "rows", "length", "words"),
    [("bert128", 512, 128, 30522), ("bert512", 128, 512, 30522), ("gpt2", 32, 1024, 50257)],
)
def test_setups_match_their_names(name: str, rows: int, length: int, words: int) -> None:
    found = setup_config(SETUPS[name], tiny=False)
    model = found.model
    assert (model.hidden_size, model.num_hidden_layers, model.num_attention_heads, model.intermediate_size) == (
        768,
        12,
        12,
        3072,
    )
    assert (model.dropout, model.attention_dropout, found.optimizer.name) == (0.1, 0.1, "adamw")
    assert (found.data.tokens_per_batch, found.data.max_length, found.data.tokens_per_micro_batch) == (
        rows * length,
        length,
        0,
    )
    assert found.vocabulary.vocab_size == words
    assert (found.run.precision, found.run.compile, found.schedule.budget) == ("auto", "auto", "")


def test_regard_reads_full_rows_of_the_corpus_and_trains(run: Trainer) -> None:
    batches: list[Tensor] = []
    run.objective.register_forward_pre_hook(lambda _, args, inputs: batches.append(inputs["ids"]), with_kwargs=True)
    before = {name: parameter.clone() for name, parameter in run.model.named_parameters()}
    step = regard_step(run)
    losses = [step().item() for _ in range(3)]
    assert [ids.shape for ids in batches] == [(4, 32)] * 3 and not torch.equal(batches[0], batches[1])
    assert all((ids < run.recipe.dataset.tokenizer.size).all() for ids in batches)
    chance = math.log(run.recipe.dataset.tokenizer.size) + (
        math.log(2) if run.recipe.config.model.family == "bert" else 0
    )
    assert losses == pytest.approx([chance] * 3, rel=0.1) and len(set(losses)) == 3
    assert all(not torch.equal(parameter, before[name]) for name, parameter in run.model.named_parameters())


def test_the_peer_has_the_same_shape_and_dropout(run: Trainer, config: PretrainingConfig) -> None:
    peer = pretrain_speed._transformers_model(config, run.recipe.dataset.tokenizer.size)
    assert sum(p.numel() for p in peer.parameters()) == sum(p.numel() for p in run.model.parameters())
    assert {module.p for module in peer.modules() if isinstance(module, nn.Dropout)} == {0.1}
    assert {module.p for module in run.model.modules() if isinstance(module, Dropout)} - {0.0} == {0.1}
    assert {module.dropout for module in run.model.modules() if isinstance(module, Attention)} == {0.1}
    assert peer.config._attn_implementation == "sdpa"


def test_the_peer_trains_on_the_same_number_of_rows(config: PretrainingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    monkeypatch.setattr(pretrain_speed, "_transformers_model", lambda *_: fake)
    config = config.model_copy(update={"data": config.data.model_copy(update={"tokens_per_batch": 100 * 32})})
    step = transformers_step(config, VOCABULARY, CPU)
    losses = [step().item() for _ in range(3)]
    assert losses[0] == 3.0 and losses == sorted(set(losses), reverse=True)
    assert fake.weight.grad is None
    ids, labels = fake.given["input_ids"], fake.given["labels"]
    assert ids.shape == labels.shape == (100, 32) and ids.min() >= 0 and ids.max() == VOCABULARY - 1
    predicted_positions = labels != -100
    assert torch.equal(labels[predicted_positions], ids[predicted_positions])
    if config.model.family == "bert":
        assert 0.12 < predicted_positions.float().mean() < 0.18
        assert sorted(set(fake.given["next_sentence_label"].tolist())) == [0, 1]
    else:
        assert predicted_positions.all() and fake.given.keys() == {"input_ids", "labels"}


def test_the_peer_trains(config: PretrainingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = pretrain_speed._transformers_model(config, VOCABULARY)
    monkeypatch.setattr(pretrain_speed, "_transformers_model", lambda *_: peer)
    before = {name: parameter.clone() for name, parameter in peer.named_parameters()}
    step = transformers_step(config, VOCABULARY, CPU)
    assert peer.training and step().item() != step().item()
    assert all(not torch.equal(parameter, before[name]) for name, parameter in peer.named_parameters())


def test_the_time_of_a_step_is_that_of_the_best_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, done = [0.0], {"fast": 0, "slow": 0}

    def step(name: str, lasts: float) -> Tensor:
        done[name] += 1
        clock[0] += lasts * (3 if 40 < done[name] <= 60 else 1)  # slowed down for a while
        return torch.zeros(())

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    steps = {"fast": lambda: step("fast", 0.1), "slow": lambda: step("slow", 0.4)}
    found = seconds_per_step(steps, CPU, seconds=10.0)
    assert found == pytest.approx({"fast": 0.1, "slow": 0.4})
    assert done["fast"] == pytest.approx(100, abs=6) and done["slow"] == pytest.approx(25, abs=6)


def test_figures_are_derived_from_the_time(
    config: PretrainingConfig, corpus_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrain_speed, "seconds_per_step", lambda *_, **__: {"regard": 0.5, "transformers": 0.75})
    monkeypatch.setattr(pretrain_speed, "peak_flops", lambda *_: 1e9)
    text = open_corpus(config, str(corpus_folder))
    found = compare("tried", config, text, device=CPU, seconds=1, peers=True)
    assert found["regard"]["tokens_per_second"] == 256 and found["transformers"]["tokens_per_second"] == 171
    assert found["regard"]["milliseconds"] == 500
    expected = 256 * objective_class(config).flops_per_token(config, text.tokenizer.size) / 1e9
    assert found["regard"]["utilisation"] == pytest.approx(expected, abs=1e-4)
    assert (found["rows"], found["length"], found["ratio"]) == (4, 32, 1.497)


def test_a_peer_that_is_not_installed_is_skipped(
    config: PretrainingConfig, corpus_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: Any) -> Any:
        raise ImportError("no module named so")

    text = open_corpus(config, str(corpus_folder))
    monkeypatch.setattr(pretrain_speed, "transformers_step", missing)
    found = compare("tried", config, text, device=CPU, seconds=0, peers=True)
    assert "transformers" not in found and "ratio" not in found and found["regard"]["tokens_per_second"] > 0
    assert "transformers skipped: no module named so" in capsys.readouterr().out
    monkeypatch.setattr(pretrain_speed, "regard_step", missing)
    with pytest.raises(ImportError):
        compare("tried", config, text, device=CPU, seconds=0, peers=True)


def test_every_result_is_saved_as_soon_as_it_is_measured(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "RESULTS", tmp_path)
    arguments = ["--corpus", str(corpus_folder), "--tiny", "--device", "cpu", "--seconds", "0", "--save", "tried"]
    main([*arguments, "--setups", "gpt2", "bert512"])
    saved = json.loads((tmp_path / "tried.json").read_text())["kinds"]
    assert list(saved) == ["gpt2", "bert512"]
    printed = capsys.readouterr().out.splitlines()
    for name, row in saved.items():
        ratio = row["regard"]["tokens_per_second"] / row["transformers"]["tokens_per_second"]
        assert row["ratio"] == pytest.approx(ratio, abs=1e-3)
        assert f"{name} ratio: {row['ratio']}" in printed

    def broken(setup: str, *_: Any, **options: Any) -> dict[str, Any]:
        if setup == "gpt2":
            raise RuntimeError("out of memory")
        return {"peers": options["peers"]}

    monkeypatch.setattr(pretrain_speed, "compare", broken)
    with pytest.raises(RuntimeError):
        main([*arguments, "--no-peers", "--setups", "bert128", "gpt2"])
    assert json.loads((tmp_path / "tried.json").read_text())["kinds"] == {"bert128": {"peers": False}}
