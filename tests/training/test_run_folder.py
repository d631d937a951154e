"""Run folders: starting, resuming and finishing runs, and the files they leave."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints.files import write_folder
from regard.errors import InputError
from regard.events import Note
from regard.training.run_folder import EVENTS, EventLog, RunFolder
from tests.crashes import Crash, die_after
from tests.training.toy_recipe import ToyConfig, ToyRecipe


class Job(ToyRecipe):
    """A job with some files in its work folder; other data is another identity."""

    kind = "training"

    def __init__(self, overrides: tuple[str, ...], data: object) -> None:
        super().__init__(ToyConfig.load(overrides=overrides))
        self.data = data

    def identity(self) -> dict[str, Any]:
        return {"data": self.data}

    def work_files(self) -> list[str]:
        return ["checkpoint", "0.json", "best/"]

    def prepared_files(self) -> list[str]:
        return ["subwords/", "subwords/vocab.txt"]


def folder(path: Path, *overrides: str, data: object = (1, 2)) -> RunFolder:
    return RunFolder(Job(overrides, data), path)


def test_a_finished_run_removes_its_work_folder(tmp_path: Path) -> None:
    run = folder(tmp_path / "new")
    run.open(resume=False)
    with run.running(), closing(EventLog(run.path / EVENTS)) as log:
        log.add(Note(message="halfway"))
        (run.work / "checkpoint").write_text("half way")
        (run.path / "report.json").write_text('{"score": 3}')
        assert folder(run.path).finished() is None, "there is still work"
    assert not run.work.exists()
    (line,) = (run.path / "events.jsonl").read_text().splitlines()
    assert '"message": "halfway"' in line
    assert folder(run.path).finished() == {"score": 3}
    assert folder(run.path, "training.num_epochs=9").finished() is None
    assert folder(run.path, data=(1, 3)).finished() is None


def test_an_interrupted_run_resumes_with_the_same_settings_only(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.open(resume=False)
    with pytest.raises(KeyboardInterrupt), run.running():
        (run.work / "checkpoint").write_text("half way")
        raise KeyboardInterrupt
    assert run.work.is_dir()
    with pytest.raises(InputError, match="holds an unfinished run: continue it with --resume"):
        folder(tmp_path).open(resume=False)
    with pytest.raises(InputError, match=r"other settings .*training\.num_epochs was 4 and is 9"):
        folder(tmp_path, "training.num_epochs=9").open(resume=True)
    with pytest.raises(InputError, match="other settings or data: data"):
        folder(tmp_path, data=(1, 3)).open(resume=True)
    folder(tmp_path).open(resume=True)


@pytest.mark.parametrize("existing", [False, True])
def test_a_run_that_fails_before_its_first_step_leaves_nothing(tmp_path: Path, existing: bool) -> None:
    path = tmp_path if existing else tmp_path / "new"
    for failure in (InputError("the text is too short"), KeyboardInterrupt(), GeneratorExit()):
        run = folder(path)
        run.open(resume=False)
        with pytest.raises(type(failure)), run.running():
            (run.work / "subwords").mkdir()
            (run.work / "subwords" / "vocab.txt").write_text("the")
            raise failure
        assert path.exists() is existing and not list(tmp_path.iterdir())
    folder(path, "training.num_epochs=9", data=3).open(resume=True)


def test_a_failed_run_removes_only_its_own_files(tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    run.open(resume=False)
    with pytest.raises(InputError), run.running():
        (run.path / "notes.txt").write_text("mine")
        (run.work / "notes.txt").write_text("mine")
        raise InputError("too short")
    left = [str(path.relative_to(run.path)) for path in sorted(run.path.rglob("*")) if path.is_file()]
    assert left == ["notes.txt", "work/notes.txt"]


def test_what_a_killed_process_prepared_does_not_block_the_next_run(tmp_path: Path) -> None:
    """Nothing was trained, so other settings are fine, and preparations for the former ones are not used."""
    run = folder(tmp_path)
    run.open(resume=False)
    run.durable.begin(run.identity)
    for name in ("config.toml", "events.jsonl", "work/subwords/vocab.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for resume in (False, True):
        again = folder(tmp_path, "training.num_epochs=9", data=3)
        again.open(resume=resume)
    with again.running():
        assert not (run.work / "subwords").exists() and not (tmp_path / "events.jsonl").exists()
        (again.work / "checkpoint").write_text("half way")


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for resume in (False, True):
        with pytest.raises(InputError, match="holds a model, which this run would write over"):
            folder(tmp_path).open(resume=resume)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        folder(tmp_path / "file" / "new").open(resume=False)


def finish(run: RunFolder) -> None:
    run.open(resume=True)
    with run.running():
        write_folder(run.path, tensors={}, files={"report.json": b'{"score": 3}'})


@pytest.mark.parametrize("resume", [False, True])
def test_one_command_starts_resumes_and_reports(tmp_path: Path, resume: bool) -> None:
    """With --resume, the same command works for a missing, empty, unfinished or finished folder."""
    for path in (tmp_path / "missing" / "new", tmp_path):
        run = folder(path)
        run.open(resume=resume)
        with pytest.raises(KeyboardInterrupt), run.running():
            raise KeyboardInterrupt
        finish(folder(path))
        assert folder(path).finished() == {"score": 3}
        with pytest.raises(InputError, match=r"no run .*finished, .*training\.num_epochs was 4 and is 9"):
            folder(path, "training.num_epochs=9").open(resume=True)
        if path != tmp_path:
            shutil.rmtree(tmp_path / "missing")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["work/thesis.txt", "notes.md", "config.toml", "run.json", "seeds/0.json", "lock"])
def test_a_folder_with_foreign_content_is_refused(tmp_path: Path, name: str, resume: bool) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"not empty: it holds '{Path(name).parts[0]}'"):
        folder(tmp_path).open(resume=resume)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [name]


def test_foreign_files_in_a_run_survive_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0.json").write_text("mine")
    run = folder(tmp_path / "run")
    run.open(resume=False)
    mine = ["notes.txt", "work/notes.txt", "work/1.json", "work/best/notes.txt"]
    with pytest.raises(KeyboardInterrupt), run.running():
        write_folder(run.work / "best", tensors={}, files={"config.json": b"{}"})
        (run.work / "0.json").write_text("ours")
        (run.work / "checkpoint").symlink_to(tmp_path / "elsewhere")
        for name in mine:
            (run.path / name).write_text("mine")
        raise KeyboardInterrupt
    finish(folder(run.path))
    saved = {"checksums.json", "model.safetensors"}
    left = {str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file()}
    assert left == {"config.toml", "report.json", "regard.json", *saved, *mine}
    assert all((run.path / name).read_text() == "mine" for name in mine)
    assert (run.work / "checkpoint").is_symlink() and (tmp_path / "elsewhere" / "0.json").exists()
    assert folder(run.path).finished() == {"score": 3}, "the work folder still exists although the run is finished"


@pytest.mark.parametrize("name", ["report.md", "config.json", "tokenizer.json"])
def test_a_conflicting_foreign_file_is_found_before_any_work(tmp_path: Path, name: str) -> None:
    run = folder(tmp_path)
    run.open(resume=False)
    with pytest.raises(KeyboardInterrupt), run.running():
        (run.work / "checkpoint").write_text("half way")
        raise KeyboardInterrupt
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"{name}: this file is in the way"):
        folder(tmp_path).open(resume=True)
    assert (tmp_path / name).read_text() == "mine"


def test_another_kind_of_run(tmp_path: Path) -> None:
    run = RunFolder(ToyRecipe(ToyConfig.load()), tmp_path)
    run.open(resume=False)
    run.durable.begin(run.identity)
    with pytest.raises(InputError, match="holds a toy run, expected a training run"):
        folder(tmp_path).open(resume=True)


def test_a_kill_while_the_work_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in range(100):
        run = folder(tmp_path / str(moment))
        run.open(resume=False)
        with monkeypatch.context() as patch, suppress(Crash), run.running():
            for name in ("checkpoint", "0.json"):
                (run.work / name).write_text("ours")
            write_folder(run.work / "best", tensors={}, files={"config.json": b"{}"})
            write_folder(run.path, tensors={}, files={"report.json": b'{"score": 3}'})
            die_after(patch, moment)
        finished = (run.path / "regard.json").read_text().count('"work": []')
        if folder(run.path).finished() is None:  # not finished yet: the run resumes
            assert sorted(path.name for path in run.work.iterdir()) == ["0.json", "best", "checkpoint"]
            finish(folder(run.path))
        assert folder(run.path).finished() == {"score": 3} and not run.work.exists(), moment
        if finished:
            break
    assert 5 < moment < 99
