"""The CPU pretraining benchmark: both implementations do the same work, and the ratio compares their speeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import pretrain_cpu, timing
from benchmarks.pretrain_cpu import main, small_bert_config, to_transformers_batch, transformers_step
from benchmarks.pretrain_speed import create_trainer, regard_step
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.corpus import open_dataset
from regard.training.recipes.pretraining.objectives import PretrainingDataset

CPU = torch.device("cpu")


def small(config: PretrainingConfig) -> PretrainingConfig:
    return config.model_copy(
        update={"data": config.data.model_copy(update={"max_length": 32, "tokens_per_batch": 512})}
    )


@pytest.fixture
def text(corpus_folder: Path) -> PretrainingDataset:
    return open_dataset(small_bert_config(), [str(corpus_folder)], corpus_folder, held_out=False)


def test_the_model_is_small_and_trained_on_sentence_pairs_too() -> None:
    config = small_bert_config(0.1)
    assert (config.model.hidden_size, config.model.num_hidden_layers, config.vocabulary.vocab_size) == (128, 2, 8192)
    assert (config.model.dropout, config.model.attention_dropout) == (0.1, 0.1)
    assert (config.objective.sentence_pairs, config.objective.short_seq_prob, config.optimizer.name) == (
        "next",
        0.1,
        "adamw",
    )


def test_rows_are_padded_and_only_masked_tokens_have_labels() -> None:
    inputs = {
        "ids": torch.tensor([2, 7, 4, 3, 2, 9, 3, 8, 3, 0, 0], dtype=torch.int32),
        "segments": torch.tensor([0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0], dtype=torch.int32),
        "masked_positions": torch.tensor([2, 7, 1]),
        "targets": torch.tensor([6, 8, -100]),
        "labels": torch.tensor([1, 0, -100, -100]),
        "starts": torch.tensor([0, 4, 9, 11, 11], dtype=torch.int32),
    }
    found = {name: tensor.tolist() for name, tensor in to_transformers_batch(inputs, 5).items()}
    assert found == {
        "input_ids": [[2, 7, 4, 3, 5], [2, 9, 3, 8, 3]],
        "attention_mask": [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
        "token_type_ids": [[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]],
        "labels": [[-100, -100, 6, -100, -100], [-100, -100, -100, 8, -100]],
        "next_sentence_label": [1, 0],
    }


def test_without_dropout_both_have_the_same_loss_at_every_step(text: PretrainingDataset) -> None:
    config = small(small_bert_config())
    # Large values, so that both have an effect.
    optimizer = config.optimizer.model_copy(update={"learning_rate": 2e-3, "weight_decay": 1.0})
    config = config.model_copy(update={"optimizer": optimizer})
    mine = regard_step(create_trainer(config, text, CPU))
    other = transformers_step(create_trainer(config, text, CPU), count=6)
    losses = [mine().item() for _ in range(6)]
    torch.testing.assert_close(losses, [other().item() for _ in range(6)], rtol=1e-4, atol=0)
    assert len(set(losses)) == 6


def test_both_apply_dropout(text: PretrainingDataset) -> None:
    config = small(small_bert_config(0.5))
    plain = regard_step(create_trainer(small(small_bert_config()), text, CPU))().item()
    for step in (
        regard_step(create_trainer(config, text, CPU)),
        transformers_step(create_trainer(config, text, CPU), count=1),
    ):
        assert abs(step().item() - plain) > 1e-3


def test_prints_the_ratio_and_saves_it(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "RESULTS", tmp_path)
    real = timing.best_times
    monkeypatch.setattr(
        pretrain_cpu, "best_times", lambda work, rounds: {name: 2.0 + len(name) for name in real(work, rounds=rounds)}
    )
    whole = small_bert_config
    monkeypatch.setattr(pretrain_cpu, "small_bert_config", lambda dropout=0.0: small(whole(dropout)))
    main(["--corpus", str(corpus_folder), "--steps", "4", "--rounds", "2", "--save"])
    saved = json.loads((tmp_path / "pretrain_cpu.json").read_text())
    for name in ("dropout 0.0", "dropout 0.1"):
        row = saved[name]
        assert row["regard"]["steps_per_second"] == 0.5 and row["transformers"]["steps_per_second"] == 0.286
        assert row["ratio"] == 1.748
    assert saved["dropout 0.0"]["regard"]["loss"] == saved["dropout 0.0"]["transformers"]["loss"]
    assert "dropout 0.1  ratio 1.75" in capsys.readouterr().out
