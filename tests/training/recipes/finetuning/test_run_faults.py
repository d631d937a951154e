"""Disk failures at the end of a run: exit code and message tell whether the model was written."""

from __future__ import annotations

import errno
import shutil
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

from regard.cli.app import run, verb_commands
from regard.files.disk import finish_save
from regard.tasks.fine_tuned_model import load_fine_tuned, save_fine_tuned
from tests.faults import CODES, DiskFaults

STRIDE = 7  # every seventh operation, to save time; tests/test_durable_folders.py covers all operations of a save
QUICK = (
    "--set",
    "training.num_epochs=1",
    "--set",
    "training.batch_size=8",
    "--set",
    "training.max_length=16",
    "--device",
    "cpu",
)


@pytest.mark.long
def test_a_fault_at_any_operation_of_the_end(
    files: Path,
    tiny_bert_folder: Path,
    tmp_path: Path,
    one_thread: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All seeds are finished; the model and the report are written and the work folder is removed."""

    def command(output: Path) -> list[str]:
        data = ["--train", str(files / "dev.tsv"), "--dev", str(files / "dev.tsv"), "-m", str(tiny_bert_folder)]
        return ["train", "classify", *data, "-o", str(output), *QUICK, "--resume"]

    def run_command(output: Path) -> tuple[int, str]:
        exit_code = run(command(output), registers=verb_commands())
        return exit_code, capsys.readouterr().err

    def fail(fine_tuned: Any, folder: Path, **options: Any) -> None:
        if folder.name == "best":
            return save_fine_tuned(fine_tuned, folder, **options)
        raise OSError(errno.EIO, "the power goes")

    with monkeypatch.context() as patch:
        patch.setattr("regard.training.recipes.finetuning.run.save_fine_tuned", fail)
        assert run_command(tmp_path / "before")[0] == 1
    right = shutil.copytree(tmp_path / "before", tmp_path / "right")
    assert run_command(right)[0] == 0
    outcomes = set()
    for number, code in zip(count(0, STRIDE), cycle(CODES), strict=False):
        output = shutil.copytree(tmp_path / "before", tmp_path / str(number))
        with DiskFaults(output, fail_at=number, code=code) as disk:
            exit_code, printed = run_command(output)
        if not disk.failed:
            break
        where = f"{number}: {disk.failed}; {printed}"
        finish_save(output)
        new = (output / "config.json").exists()
        if new:
            load_fine_tuned(output)
            assert (output / "checksums.json").read_bytes() == (right / "checksums.json").read_bytes(), where
            assert exit_code == 0 or (exit_code == 1 and "is saved" in printed.splitlines()[-1]), where
        else:
            assert exit_code in (1, 2) and "is saved" not in printed, where
            assert (output / "seeds" / "0.json").exists() and (output / "seeds" / "best" / "config.json").exists(), (
                where
            )
        outcomes.add((new, exit_code == 0))
        with DiskFaults(output):
            assert run_command(output)[0] == 0, where
        for name in ("config.json", "model.safetensors", "report.json", "checksums.json"):
            assert (output / name).read_bytes() == (right / name).read_bytes(), where
        assert not (output / "seeds").exists(), where
        shutil.rmtree(output)
    assert number > 40 and outcomes == {(False, False), (True, False), (True, True)}
