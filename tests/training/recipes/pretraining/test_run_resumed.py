"""Resumed runs in this process: bit-identical if nothing changed, refused if something did."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.errors import InputError, RegardError
from regard.events import drain
from regard.training.recipes.pretraining import run as running
from regard.training.recipes.pretraining.run import PretrainingResult, pretrain
from tests.training.recipes.pretraining.runs import STEPS, config, events, ignore_preparation, losses, step_clock

CPU = torch.device("cpu")
DROPOUT = {"model_dropout": 0.1, "model_attention_dropout": 0.1}
pytestmark = pytest.mark.usefixtures("fast_run_settings")


class Crash(BaseException):
    """Stands for the end of the process."""


def train(
    corpus: Path,
    output: Path,
    *,
    family: Any = "bert",
    changed: Mapping[str, Any] = DROPOUT,
    on_event: Callable[[Any], None] | None = None,
    **options: Any,
) -> PretrainingResult:
    return drain(pretrain(config(family, **changed), [str(corpus)], output, device=CPU, **options), on_event)


def train_until_crash(corpus: Path, output: Path, *, after: str = "checkpoint", step: int = 8, **options: Any) -> None:
    """Train until the given event of the given step, then crash."""

    def handle_event(event: Any) -> None:
        if (event.type, getattr(event, "step", None)) == (after, step):
            raise Crash

    with pytest.raises(Crash):
        train(corpus, output, on_event=handle_event, **options)
    assert not (output / "config.json").exists()


def assert_same(output: Path, uninterrupted: Path) -> None:
    """Assert equal weights and equal logged losses."""
    expected = losses(uninterrupted)
    assert set(losses(output)) == set(expected) == {*range(1, STEPS + 1)}
    for step, found in losses(output).items():
        assert {*found} == {*expected[step]}, step
    assert (output / "model.safetensors").read_bytes() == (uninterrupted / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    output = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.trainer.LOG_EVERY", 0.0)
        patch.setattr("regard.training.speed.SECONDS", 0.0)
        train(corpus, output)
    return output


@pytest.mark.parametrize(("after", "step"), [("checkpoint", 4), ("step", 7), ("checkpoint", 12)])
def test_a_crashed_run_continues_bit_for_bit(
    after: str, step: int, corpus: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    train_until_crash(corpus, tmp_path, after=after, step=step)
    result = train(corpus, tmp_path, resume=True)
    (resumed,) = events(tmp_path, "resume")
    assert resumed["step"] == step - step % 4
    assert_same(tmp_path, uninterrupted)
    (end,) = events(uninterrupted, "finished")
    assert (result.steps, result.tokens, result.scores) == (STEPS, end["tokens"], end["scores"])


def flip(path: Path, offset: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if offset is None else offset] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["shard-000000/tokens.bin", "shard-000000/sentences.npy", "tokenizer/tokenizer.json", "regard.json"]
)
def test_damage_to_a_corpus_is_reported(name: str, corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path / "corpus")
    train_until_crash(tmp_path / "corpus", tmp_path / "run")
    flip(tmp_path / "corpus" / name)
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "corpus" / name))):
        train(tmp_path / "corpus", tmp_path / "run", resume=True)


def test_verify_always_does_not_trust_size_and_time(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path / "corpus")
    train_until_crash(tmp_path / "corpus", tmp_path / "run")
    path = tmp_path / "corpus" / "shard-000000" / "tokens.bin"
    state = path.stat()
    flip(path, 0)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(InputError, match=r"tokens\.bin is damaged: its SHA-256"):
        train(tmp_path / "corpus", tmp_path / "run", resume=True, verify="always")


@pytest.mark.parametrize("name", ["corpus/shard-000000/tokens.bin", "corpus/tokenizer/tokenizer.json", "vocabulary"])
def test_damage_to_its_own_corpus_is_reported_and_repaired(
    name: str, source: Path, corpus: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    train_until_crash(source, tmp_path)
    path = tmp_path / name / "tokenizer.json" if name == "vocabulary" else tmp_path / name
    good = path.read_bytes()
    flip(path)
    lines: list[str] = []
    train(source, tmp_path, resume=True, on_event=lambda event: lines.append(event.line() or ""))
    assert any(str(path) in line for line in lines), lines
    assert path.read_bytes() == good
    assert_same(tmp_path, uninterrupted)


def test_damaged_saved_settings_are_reported(corpus: Path, tmp_path: Path) -> None:
    train_until_crash(corpus, tmp_path)
    path = tmp_path / "config.toml"
    good = path.read_bytes()
    for damaged in (good.replace(b"rate = 0.01", b"rate = 0.03"), good[:-40], good[:50], b""):
        assert damaged != good
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"config\.toml"):
            train(corpus, tmp_path, resume=True)
    path.write_bytes(good.partition(b"\n")[2])  # the format before checksums were added
    train(corpus, tmp_path, resume=True)


OTHERS: dict[str, dict[str, Any]] = {
    "gpt": {"family": "gpt"},
    "t5": {"family": "t5", "changed": {"model_dropout": 0.1}},
    "elmo": {"family": "elmo", "changed": {"model_dropout": 0.1, "model_intermediate_size": 32}},
    "muon": {"changed": {"optimizer_name": "muon", "data_tokens_per_micro_batch": 128, "model_dropout": 0.1}},
    "single": {
        "changed": {"objective_sentence_pairs": "none", "objective_whole_word_mask": "true", "run_seed": 1 << 62}
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_runs_resume_bit_for_bit(name: str, source: Path, tmp_path: Path) -> None:
    train(source, tmp_path / "whole", **OTHERS[name])
    train_until_crash(source, tmp_path / "cut", after="step", step=11, **OTHERS[name])
    train(source, tmp_path / "cut", resume=True, **OTHERS[name])
    assert_same(tmp_path / "cut", tmp_path / "whole")


def test_a_resumed_run_is_evaluated_at_the_same_steps(corpus: Path, tmp_path: Path) -> None:
    changed = {"run_evaluate_every": "3 steps", "run_checkpoint_every": "5 steps"}
    train_until_crash(corpus, tmp_path, after="step", step=6, changed=changed)
    train(corpus, tmp_path, resume=True, changed=changed)
    assert [event["step"] for event in events(tmp_path, "evaluation")] == [3, 6, 9, 12]
    assert [event["step"] for event in events(tmp_path, "checkpoint")] == [5, 10, 12]


def test_resuming_a_finished_run_changes_nothing(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    first = train(corpus, tmp_path)
    again = train(corpus, tmp_path, resume=True)
    assert again == first.model_copy(update={"seconds": again.seconds}) and again.seconds == pytest.approx(
        first.seconds, abs=0.01
    )
    assert len(events(tmp_path, "step")) == STEPS and len(events(tmp_path, "checkpoint")) == 3
    assert_same(tmp_path, uninterrupted)


def damage(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_checkpoint_is_skipped(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    train_until_crash(corpus, tmp_path)
    damage(tmp_path / "checkpoints" / "step-000000008")
    lines: list[str] = []
    train(corpus, tmp_path, resume=True, on_event=lambda event: lines.append(event.line() or ""))
    assert [line for line in lines if "skipped a damaged checkpoint" in line and "step-000000008" in line]
    assert [event["step"] for event in events(tmp_path, "resume")] == [4]
    assert_same(tmp_path, uninterrupted)


@pytest.mark.parametrize("subfolder", ["", f"checkpoints/step-{STEPS:09d}"])
def test_damage_to_a_finished_run_is_repaired(
    subfolder: str, corpus: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    output = shutil.copytree(uninterrupted, tmp_path / "run")
    damage(output / subfolder)
    lines: list[str] = []
    train(corpus, output, resume=True, on_event=lambda event: lines.append(event.line() or ""))
    assert [line for line in lines if str(output / subfolder / "model.safetensors") in line]
    for file in ("model.safetensors", f"checkpoints/step-{STEPS:09d}/model.safetensors"):
        assert (output / file).read_bytes() == (uninterrupted / file).read_bytes()


def test_a_damaged_model_without_checkpoints_is_refused(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    output = shutil.copytree(uninterrupted, tmp_path / "run")
    shutil.rmtree(output / "checkpoints")
    damage(output)
    with pytest.raises(InputError, match=r"run/model\.safetensors"):
        train(corpus, output, resume=True)


def test_only_damaged_checkpoints(corpus: Path, tmp_path: Path) -> None:
    train_until_crash(corpus, tmp_path)
    for name in os.listdir(tmp_path / "checkpoints"):
        damage(tmp_path / "checkpoints" / name)
    with pytest.raises(RegardError, match="all of its 2 checkpoints are damaged"):
        train(corpus, tmp_path, resume=True)


def test_changed_settings_are_reported(corpus: Path, tmp_path: Path) -> None:
    train_until_crash(corpus, tmp_path, step=4)
    message = (
        r"was started with other settings: model\.dropout was 0\.1 and is 0\.2; "
        r"optimizer\.learning_rate was 0\.01 and is 0\.02\. "
        "Resume with those, or choose another --output"
    )
    with pytest.raises(InputError, match=message):
        train(corpus, tmp_path, resume=True, changed={**DROPOUT, "model_dropout": 0.2, "optimizer_learning_rate": 0.02})
    with pytest.raises(InputError, match="family is 'bert', and this trains a 'gpt'"):
        train(corpus, tmp_path, resume=True, family="gpt")
    train(corpus, tmp_path, resume=True)  # the run is still intact


def test_another_text_is_refused(corpus: Path, source: Path, unseen: Path, tmp_path: Path) -> None:
    train_until_crash(corpus, tmp_path / "a", step=4)
    with pytest.raises(InputError, match="was trained on another text: resume with the same --corpus"):
        train(corpus, tmp_path / "a", resume=True, held_out=[str(unseen)])
    train_until_crash(source, tmp_path / "b", step=4)
    with pytest.raises(InputError, match=r"holds another corpus: .*unseen"):
        train(unseen, tmp_path / "b", resume=True)


def test_an_unfinished_run_is_not_started_again(corpus: Path, tmp_path: Path) -> None:
    train_until_crash(corpus, tmp_path, step=4)
    with pytest.raises(InputError, match=r"holds an unfinished run: .*--resume, .* another --output"):
        train(corpus, tmp_path)


def test_resume_starts_a_run_without_checkpoints(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """The same command works for a missing folder, an empty one, and one with a run interrupted early."""
    (tmp_path / "empty").mkdir()
    train_until_crash(corpus, tmp_path / "cut", after="step", step=2)
    for name in ("missing", "empty", "cut"):
        train(corpus, tmp_path / name, resume=True)
        assert_same(tmp_path / name, uninterrupted)
        assert not events(tmp_path / name, "resume")
    train_until_crash(corpus, tmp_path / "again", after="step", step=2)
    train(corpus, tmp_path / "again")
    assert_same(tmp_path / "again", uninterrupted)


def test_a_finished_run_does_no_work(
    corpus: Path, unseen: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = shutil.copytree(uninterrupted, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("regard.training.recipes.pretraining.run.LanguageModelRecipe", None)
        result = train(corpus, output, resume=True)
    end = json.loads((output / "events.jsonl").read_text().splitlines()[-1])
    assert (result.steps, result.seconds, result.scores) == (STEPS, end["seconds"], end["scores"])
    with pytest.raises(InputError, match="was trained on another text"):
        train(corpus, output, resume=True, held_out=[str(unseen)])


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["corpus/mine.txt", "vocabulary/tokenizer.json", "checkpoints/notes", "config.toml"])
def test_foreign_content_is_refused(corpus: Path, tmp_path: Path, name: str, resume: bool) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"not empty: it holds '{Path(name).parts[0]}'"):
        train(corpus, tmp_path, resume=resume)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_budget_ends_with_the_clock(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_preparation(monkeypatch)
    step_clock(monkeypatch)
    changed = {"schedule_max_steps": 0, "schedule_budget": "0.6s", "run_checkpoint_every": "0.2s"}
    result = train(corpus, tmp_path, changed=changed)
    steps = events(tmp_path, "step")
    assert 0.6 <= result.seconds < 0.7
    assert len(steps) == result.steps > 3
    assert all(0 <= step["progress"] < 1 for step in steps) and steps[-1]["progress"] > 0.5
    assert steps[-1]["learning_rate"] == pytest.approx(0.01 * (1 - steps[-1]["progress"]) / 0.95)
    assert len(events(tmp_path, "checkpoint")) >= 2


def test_a_resumed_budget_carries_the_time(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_preparation(monkeypatch)
    step_clock(monkeypatch)
    changed = {"schedule_max_steps": 0, "schedule_budget": "0.8s", "run_checkpoint_every": "0.3s"}

    def handle_event(event: Any) -> None:
        if event.type == "checkpoint":
            raise Crash

    with pytest.raises(Crash):
        train(corpus, tmp_path, changed=changed, on_event=handle_event)
    (checkpoint,) = events(tmp_path, "checkpoint")
    before = next(event for event in events(tmp_path, "step") if event["step"] == checkpoint["step"])
    assert before["seconds"] >= 0.3
    result = train(corpus, tmp_path, changed=changed, resume=True)
    (resumed,) = events(tmp_path, "resume")
    assert before["seconds"] <= resumed["seconds"] < before["seconds"] + 0.1
    later = [event for event in events(tmp_path, "step") if event["time"] > resumed["time"]]
    assert later[0]["progress"] >= resumed["seconds"] / 0.8
    assert 0.8 <= result.seconds < 0.9


def test_a_budget_includes_the_preparation(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the preparation had taken 500 seconds, and in the resumed run 900."""
    changed = {"schedule_max_steps": 0, "schedule_budget": "1000s", "run_checkpoint_every": "1 steps"}
    now = time.perf_counter

    def begin(seconds: float) -> None:
        monkeypatch.setattr(running, "time", SimpleNamespace(perf_counter=lambda: now() - seconds))

    begin(500)
    train_until_crash(corpus, tmp_path, step=1, changed=changed)
    (plan,), (step, *_) = events(tmp_path, "plan"), events(tmp_path, "step")
    assert plan["preparation"] >= 500 and plan["seconds"] < 501
    left = step["seconds_left"] + step["seconds"]
    assert left < 500 and step["progress"] < 0.01  # the schedule begins with the first step
    begin(900)
    train_until_crash(corpus, tmp_path, step=2, changed=changed, resume=True)
    later = events(tmp_path, "step")[-1]
    assert later["seconds_left"] + later["seconds"] == pytest.approx(left)


def test_a_budget_that_is_used_up_keeps_the_text(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"schedule_max_steps": 0, "schedule_budget": "1000s", "run_checkpoint_every": "1 steps"}
    now = time.perf_counter
    monkeypatch.setattr(running, "time", SimpleNamespace(perf_counter=lambda: now() - 1000))
    with pytest.raises(InputError, match=r"1000s is used up .*first step.*the same command"):
        train(source, tmp_path, changed=changed)
    assert (tmp_path / "vocabulary").is_dir() and (tmp_path / "corpus").is_dir()
    monkeypatch.undo()
    train_until_crash(source, tmp_path, step=1, changed=changed)


def send_signals(*signals: int) -> Callable[[Any], None]:
    """Send this process signals after step 6."""

    def handle_event(event: Any) -> None:
        if (event.type, getattr(event, "step", None)) == ("step", 6):
            for number in signals:
                signal.raise_signal(number)

    return handle_event


@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_saves_after_a_whole_step(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(corpus, tmp_path, on_event=send_signals(signal.SIGINT))
    (interrupted,) = events(tmp_path, "interrupted")
    assert interrupted["step"] == 6
    assert [event["step"] for event in events(tmp_path, "checkpoint")] == [4, 6]
    train(corpus, tmp_path, resume=True)
    assert_same(tmp_path, uninterrupted)


@pytest.mark.usefixtures("default_sigint")
def test_a_second_ctrl_c_stops_at_once(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(corpus, tmp_path, on_event=send_signals(signal.SIGINT, signal.SIGINT))
    assert [event["step"] for event in events(tmp_path, "checkpoint")] == [4]
    train(corpus, tmp_path, resume=True)
    assert_same(tmp_path, uninterrupted)
