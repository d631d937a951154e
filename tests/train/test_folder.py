"""A run's folder: what may begin, what may go on, what is over, and what a run leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import InputError
from regard.finetune.config import Config
from regard.train.folder import RunFolder


def folder(path: Path, *overrides: str, **run: object) -> RunFolder:
    return RunFolder(path, Config.load(overrides=overrides), {"data": (1, 2), **run}, work="work")


def test_a_run_begins_ends_and_leaves_no_work(tmp_path: Path) -> None:
    run, told = folder(tmp_path / "new"), []
    run.open(resume=False)
    with run.running(told.append) as note:
        note("step", loss=1.5)
        (run.work / "checkpoint").write_text("half way")
        (run.path / "report.json").write_text('{"score": 3}')
        assert folder(run.path).finished() is None, "there is still work"
    assert not run.work.exists() and told[0]["loss"] == 1.5
    assert (run.path / "events.jsonl").read_text().count("\n") == 1
    assert folder(run.path).finished() == {"score": 3}
    assert folder(run.path, "training.epochs=9").finished() is None
    assert folder(run.path, data=(1, 3)).finished() is None


def test_a_run_that_was_cut_goes_on_with_the_same_settings_only(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.open(resume=False)
    with pytest.raises(KeyboardInterrupt), run.running(lambda event: None):
        raise KeyboardInterrupt
    assert run.work.is_dir()
    with pytest.raises(InputError, match="holds a run that was begun: go on with --resume"):
        folder(tmp_path).open(resume=False)
    with pytest.raises(InputError, match=r"begun otherwise: training\.epochs was 3 and is 9"):
        folder(tmp_path, "training.epochs=9").open(resume=True)
    with pytest.raises(InputError, match="begun otherwise: data"):
        folder(tmp_path, data=(1, 3)).open(resume=True)
    folder(tmp_path).open(resume=True)


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run to resume"):
        folder(tmp_path).open(resume=True)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds a model, which this run would write over"):
        folder(tmp_path).open(resume=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        folder(tmp_path / "file" / "new").open(resume=False)
