"""The choice between replicas and shards, and the copy that a sharded model is gathered into."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from regard.errors import InputError
from regard.events import drain
from regard.models import Bert, BertConfig
from regard.training.distributed import parallel
from regard.training.distributed.parallel import blank_copy, choose_parallel, device_memory, training_bytes
from regard.training.distributed.world import World
from regard.training.recipes.embedding.data import TextRows
from regard.training.recipes.embedding.recipe import train_embedder
from regard.training.settings import Parallel

CPU = torch.device("cpu")
TWO = World(0, 2, 0)


def tiny_bert() -> Bert:
    return Bert(
        BertConfig(
            vocab_size=11,
            hidden_size=8,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=8,
        )
    )


def test_bytes_of_training() -> None:
    model = tiny_bert()
    count = sum(p.numel() for p in model.parameters())
    matrices = sum(p.numel() for p in model.encoder.parameters() if p.ndim == 2)
    assert training_bytes(model, "adamw") == 16 * count
    assert training_bytes(model, "muon") == 16 * count - 4 * matrices
    model.requires_grad_(False)
    assert training_bytes(model, "adamw") == 4 * count


@pytest.mark.parametrize(
    ("setting", "memory", "chosen"),
    [("auto", 1 << 40, "ddp"), ("auto", 20_000, "fsdp"), ("ddp", 20_000, "ddp"), ("fsdp", 1 << 40, "fsdp")],
)
def test_shards_only_if_the_model_does_not_fit(
    setting: Parallel, memory: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "device_memory", lambda device: memory)
    found, note = choose_parallel(setting, tiny_bert(), optimizer="adamw", world=TWO, device=CPU)
    assert found == chosen and f"({chosen})" in note and "2 processes" in note


def test_one_process_needs_no_choice() -> None:
    for setting in ("auto", "ddp"):
        assert choose_parallel(setting, tiny_bert(), optimizer="adamw", world=World(), device=CPU) == ("ddp", "")
    found, note = choose_parallel("fsdp", tiny_bert(), optimizer="adamw", world=World(), device=CPU)
    assert found == "ddp" and "there is one, which trains it whole; start several with torchrun" in note


def test_models_that_cannot_be_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "device_memory", lambda device: 1)
    scalar = nn.Module()
    scalar.gamma = nn.Parameter(torch.ones(()))
    for model, reason in ((nn.LSTM(2, 2), "recurrent layers"), (scalar, "gamma is a single number")):
        assert choose_parallel("auto", model, optimizer="adamw", world=TWO, device=CPU)[0] == "ddp"
        with pytest.raises(InputError, match=rf"cannot divide .*{reason}.*; use run\.parallel=ddp"):
            choose_parallel("fsdp", model, optimizer="adamw", world=TWO, device=CPU)


def test_the_processes_of_a_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    whole = device_memory(CPU)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert device_memory(CPU) == whole // 4 > 0


def test_a_blank_copy_has_no_memory_and_keeps_ties() -> None:
    model = tiny_bert()
    blank = blank_copy(model)
    assert all(parameter.is_meta for parameter in blank.parameters())
    assert not any(parameter.is_meta for parameter in model.parameters())
    blank.load_state_dict(model.state_dict(), assign=True)
    assert blank.mlm_head is not None and blank.mlm_head.weight is blank.embedding.tokens.weight
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(blank.eval()(ids), model.eval()(ids))


def test_training_in_one_process_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = TextRows((["a film", "a day"], ["the film", "the day"]))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(InputError, match=r"one process, .*torchrun started 3: .*its batch"):
        drain(train_embedder(rows, output=tmp_path / "run", device="cpu"))
    assert not (tmp_path / "run").exists()
