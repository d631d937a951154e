"""Translators in several processes: each batch is shared, and the losses are those of one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inference.translation.conftest import SMALL, sentences
from tests.training.recipes.pretraining.runs import Launcher, exit_codes, losses, start_processes

# No dropout: each process has its own random state.
SETTINGS = (*SMALL, "training.num_epochs=2", "model.dropout=0", "run.checkpoint_every=3 steps")


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    modules = ("regard.training.recipes.translation.recipe", "torch.distributed.fsdp")
    launcher = Launcher(tmp_path_factory.mktemp("printed"), *modules)
    yield launcher
    launcher.close()


def command(output: Path, *settings: str, model: str = "transformer") -> list[str]:
    table = output.parent / "pairs.tsv"
    table.write_text("".join(f"{source}\t{target}\n" for source, target in sentences(60)), encoding="utf-8")
    values = [part for setting in (*SETTINGS, *settings) for part in ("--set", _as_toml(setting))]
    files = ["--train", str(table), "--limit", "55", "-o", str(output)]
    return ["train", "translate", *files, "-m", model, "--device", "cpu", *values]


def _as_toml(setting: str) -> str:
    name, _, value = setting.partition("=")
    return f'{name}="{value}"' if name.startswith("run.") else setting


@pytest.mark.parametrize(
    ("model", "parallel"),
    [
        ("transformer", "ddp"),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("transformer", "fsdp"), ("lstm", "ddp"))),
    ],
)
def test_two_processes_are_one_run(model: str, parallel: str, launcher: Launcher, tmp_path: Path) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    code, printed = launcher.run(command(alone, model=model))
    assert code == 0, printed
    processes = start_processes(launcher, command(shared, f"run.parallel={parallel}", model=model))
    assert exit_codes(processes) == [0, 0], [process.printed for process in processes]
    assert "55 of 60 pairs were sampled" in processes[0].printed and processes[1].printed == ""
    found, expected = losses(shared), losses(alone)
    assert found.keys() == expected.keys() and len(found) > 5
    for step, (values,) in expected.items():
        assert found[step][0] == pytest.approx(values, rel=2e-4), step
    names = [sorted(path.name for path in folder.iterdir()) for folder in (shared, alone)]
    assert names[0] == names[1]


def test_recurrent_layers_cannot_be_sharded(launcher: Launcher, tmp_path: Path) -> None:
    processes = start_processes(launcher, command(tmp_path / "run", "run.parallel=fsdp", model="lstm"))
    assert exit_codes(processes) == [2, 2], [process.printed for process in processes]
    assert "recurrent layers" in processes[0].printed
