"""Complete fine-tuning runs: output files, learning, and bit-identical results after interruptions."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.events import drain
from regard.tasks.evaluation.evaluate import evaluate_model
from regard.tasks.evaluation.result import EvaluationResult
from regard.tasks.fine_tuned_model import load_fine_tuned, predict
from regard.training.recipes.finetuning.report import FineTuningReport

Tune = Callable[..., FineTuningReport]


class Crash(BaseException):
    """Stands for a power failure."""


def crash_after(after: int, *, kind: str = "step") -> Callable[[Mapping[str, Any]], None]:
    count = 0

    def on_event(event: Any) -> None:
        nonlocal count
        count += event.type == kind
        if count == after:
            raise Crash

    return on_event


def evaluate(folder: Path, data: Any) -> EvaluationResult:
    return drain(evaluate_model(load_fine_tuned(folder), data))


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_model_is_fine_tuned_and_saved(tune: Tune, files: Path, tmp_path: Path) -> None:
    report = tune(tmp_path / "run", "training.num_epochs=25")
    assert report.mean["accuracy"] >= 95
    found = evaluate(tmp_path / "run", str(files / "dev.tsv"))
    assert (found.task, found.n) == ("classify", 40)
    assert found.metrics.items() >= report.best.scores.items()
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert document["mean"] == report.mean and document["data"]["train"]["examples"] == 96
    assert not (tmp_path / "run" / "seeds").exists()


def test_the_best_epoch_and_the_best_seed_are_saved(tune: Tune, files: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    report = tune(tmp_path / "run", "run.num_seeds=3", "training.learning_rate=2e-3", on_event=events.append)
    evaluations = [event for event in events if event.type == "evaluation"]
    assert [(event.seed, event.epoch) for event in evaluations] == [(s, e) for s in range(3) for e in (1, 2, 3)]
    for outcome in report.seeds:
        mine = [event.scores["accuracy"] for event in evaluations if event.seed == outcome.seed]
        assert outcome.scores["accuracy"] == max(mine) and outcome.epoch == mine.index(max(mine)) + 1
    assert report.best.scores["accuracy"] == max(outcome.scores["accuracy"] for outcome in report.seeds)
    assert evaluate(tmp_path / "run", str(files / "dev.tsv")).metrics.items() >= report.best.scores.items()
    assert f"| {report.best.seed} | {report.best.epoch} | {report.best.scores['accuracy']:.2f} |" in report.markdown()


def test_the_last_epoch_is_evaluated_once(tune: Tune, tmp_path: Path) -> None:
    events: list[Any] = []
    report = tune(tmp_path / "run", "training.select=last", on_event=events.append)
    assert [event.epoch for event in events if event.type == "evaluation"] == [3]
    assert report.best.epoch == 3 and report.best.history[:2] == [{}, {}]


def test_patience_ends_a_run(tune: Tune, tmp_path: Path) -> None:
    report = tune(
        tmp_path / "run", "training.num_epochs=40", "training.early_stopping_patience=2", "training.learning_rate=1e-9"
    )
    assert report.best.epoch == 1 and len(report.best.history) == 3


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tune: Tune, tmp_path: Path) -> None:
    tune(tmp_path / "a", "training.dropout=0.1")
    tune(tmp_path / "b", "training.dropout=0.1")
    tune(tmp_path / "c", "training.dropout=0.1", "run.seed=1")
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")


@pytest.mark.long
@pytest.mark.parametrize("settings", [(), ("training.optimizer=muon",)], ids=["adamw", "muon"])
def test_crashes_change_no_bit(tune: Tune, tmp_path: Path, settings: tuple[str, ...]) -> None:
    settings = (*settings, "run.num_seeds=2", "training.dropout=0.1", "run.checkpoint_every=2 steps")
    whole = tune(tmp_path / "whole", *settings)
    for number, after in enumerate((1, 3, 9, 14, 20, 2)):
        with pytest.raises(Crash):
            tune(tmp_path / "cut", *settings, resume=number > 0, on_event=crash_after(after))
    report = tune(tmp_path / "cut", *settings, resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert [one.scores for one in report.seeds] == [one.scores for one in whole.seeds]
    assert [one.history for one in report.seeds] == [one.history for one in whole.seeds]


def flip(path: Path, offset: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if offset is None else offset] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(tune: Tune, tmp_path: Path) -> None:
    settings = ("training.dropout=0.1", "run.checkpoint_every=4 steps")
    tune(tmp_path / "whole", *settings)
    with pytest.raises(Crash):
        tune(tmp_path / "cut", *settings, on_event=crash_after(11))
    checkpoints = tmp_path / "cut" / "seeds" / "checkpoints-0"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-000000004", "step-000000008"]
    damaged = checkpoints / "step-000000008" / "model.safetensors"
    flip(damaged)
    events: list[Any] = []
    tune(tmp_path / "cut", *settings, resume=True, on_event=events.append)
    [passed] = [event for event in events if event.type == "note" and "damaged" in event.message]
    assert str(damaged) in passed.message
    assert [event.step for event in events if event.type == "resume"] == [4]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def stop_before_the_last_seed(tune: Tune, output: Path, *settings: str) -> None:
    """Start a run of three seeds and stop when the last one begins."""

    def on_event(event: Any) -> None:
        if event.type == "step" and event.seed == 2:
            raise Crash

    with pytest.raises(Crash):
        tune(output, "run.num_seeds=3", *settings, on_event=on_event)


@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_seed_result_is_reported_and_the_remedy_works(tune: Tune, tmp_path: Path, number: int) -> None:
    """The model of the best seed is saved, even if another seed is trained again."""
    whole = tune(tmp_path / "whole", "run.num_seeds=3", "training.dropout=0.1")
    stop_before_the_last_seed(tune, tmp_path / "cut", "training.dropout=0.1")
    path = tmp_path / "cut" / "seeds" / f"{number}.json"
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"accuracy": ', b'"accuracy": 9', 1))
    with pytest.raises(InputError, match=rf"seeds/{number}\.json.*delete it.*--resume"):
        tune(tmp_path / "cut", "run.num_seeds=3", "training.dropout=0.1", resume=True)
    path.unlink()
    report = tune(tmp_path / "cut", "run.num_seeds=3", "training.dropout=0.1", resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert [one.scores for one in report.seeds] == [one.scores for one in whole.seeds]


def test_a_damaged_best_model_is_reported_and_the_remedy_works(tune: Tune, tmp_path: Path) -> None:
    whole = tune(tmp_path / "whole", "run.num_seeds=3", "training.dropout=0.1")
    stop_before_the_last_seed(tune, tmp_path / "cut", "training.dropout=0.1")
    seeds = tmp_path / "cut" / "seeds"
    flip(seeds / "best" / "model.safetensors")
    best = max(whole.seeds[:2], key=lambda one: one.scores["accuracy"]).seed
    message = rf"best/model\.safetensors.*delete .*best and .*{best}\.json.*--resume"
    with pytest.raises(InputError, match=message):
        tune(tmp_path / "cut", "run.num_seeds=3", "training.dropout=0.1", resume=True)
    shutil.rmtree(seeds / "best")
    (seeds / f"{best}.json").unlink()
    tune(tmp_path / "cut", "run.num_seeds=3", "training.dropout=0.1", resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


@pytest.mark.parametrize("name", ["report.json", "task.json", "tokenizer.json", "regard.json", "config.toml"])
def test_damage_to_a_finished_run_is_reported(tune: Tune, tmp_path: Path, name: str) -> None:
    report = tune(tmp_path / "run")
    assert tune(tmp_path / "run", resume=True) == report
    path = tmp_path / "run" / name
    flip(path, path.read_bytes().index(b"task" if name == "regard.json" else b"3"))
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        tune(tmp_path / "run", resume=True)


@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_saves_and_ends(tune: Tune, tmp_path: Path) -> None:
    def on_event(event: Any) -> None:
        if event.type == "step" and event.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "run", on_event=on_event)
    assert (tmp_path / "run" / "seeds" / "checkpoints-0" / "step-000000005").is_dir()
    steps: list[int] = []
    tune(
        tmp_path / "run",
        resume=True,
        on_event=lambda event: steps.append(event.step) if event.type == "step" else None,
    )
    assert steps[0] == 6 and steps[-1] == 36


def test_a_frozen_encoder_is_unchanged(tune: Tune, tmp_path: Path, tiny_bert_folder: Path) -> None:
    import regard

    report = tune(tmp_path / "run", "training.frozen=true")
    before = dict(regard.load(tiny_bert_folder)[0].named_parameters())
    solved = load_fine_tuned(tmp_path / "run")
    for name, parameter in solved.model.encoder.named_parameters():
        assert torch.equal(parameter, before[name]), name
    assert solved.model.vectors is not None and solved.model.head.pool is None  # type: ignore[union-attr]
    assert report.settings["training"]["frozen"] is True


def test_without_dev_the_data_is_split(tune: Tune, tmp_path: Path) -> None:
    report = tune(tmp_path / "two", dev=None)
    sizes = {name: about["examples"] for name, about in report.data.items()}
    assert sum(sizes.values()) == 96 and sizes.keys() == {"train", "dev"} and 6 <= sizes["dev"] <= 13
    report = tune(tmp_path / "three", dev=None, split="60/20/20")
    sizes = {name: about["examples"] for name, about in report.data.items()}
    assert sum(sizes.values()) == 96 and 14 <= sizes["test"] <= 24
    assert report.data["test"]["scores"].keys() >= {"accuracy", "f1"}
    with pytest.raises(InputError, match="one of them"):
        tune(tmp_path / "four", split="60/20/20")


def test_predictions_do_not_see_labels(tune: Tune, tmp_path: Path) -> None:
    from regard.data.examples import TextExample

    tune(tmp_path / "run")
    solved = load_fine_tuned(tmp_path / "run")
    device = torch.device("cpu")
    plain, labeled = (
        predict(solved, [TextExample("the film is good", label=label)], device=device) for label in (None, "never")
    )
    assert plain == labeled and plain[0]["label"] in ("neg", "pos")


def test_runs_that_cannot_be_resumed_are_refused(tune: Tune, files: Path, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        tune(tmp_path / "run", on_event=crash_after(14))
    with pytest.raises(InputError, match="continue it with --resume"):
        tune(tmp_path / "run")
    with pytest.raises(InputError, match=r"training\.num_epochs was 3 and is 4"):
        tune(tmp_path / "run", "training.num_epochs=4", resume=True)
    with pytest.raises(InputError, match="data was"):
        tune(tmp_path / "run", dev=str(files / "train.tsv"), resume=True)
    done = tune(tmp_path / "run", resume=True)
    before = weights(tmp_path / "run")
    assert tune(tmp_path / "run", resume=True) == done and weights(tmp_path / "run") == before  # nothing to do
    with pytest.raises(InputError, match="no run to resume"):
        tune(tmp_path / "run", "training.num_epochs=4", resume=True)
    with pytest.raises(InputError, match="holds a model"):
        tune(tmp_path / "run")
    with pytest.raises(InputError, match="holds a run or a model"):
        tune(tmp_path / "run", both=True)
    assert not (tmp_path / "run" / "frozen").exists()


@pytest.mark.parametrize("both", [False, True])
def test_a_run_that_fails_before_its_first_checkpoint_blocks_nothing(tune: Tune, tmp_path: Path, both: bool) -> None:
    kind = "progress" if both else "step"  # the head of a frozen encoder is fitted without steps
    for resume in (False, True):
        with pytest.raises(Crash):
            tune(tmp_path / "run", on_event=crash_after(1, kind=kind), both=both, resume=resume)
        assert not list(tmp_path.iterdir())
    with pytest.raises(Crash):
        tune(tmp_path / "run", "training.num_epochs=2", on_event=crash_after(14), both=both, resume=True)
    assert (tmp_path / "run").is_dir(), "there is a checkpoint to resume from"


def test_one_command_starts_and_resumes(tune: Tune, tmp_path: Path) -> None:
    """Interrupted before the first checkpoint, during the run, and after it: always with resume=True."""
    for after in (2, 30):
        with pytest.raises(Crash):
            tune(tmp_path / "run", on_event=crash_after(after), resume=True)
        assert not (tmp_path / "run" / "config.json").exists()
    done = tune(tmp_path / "run", resume=True)
    whole = tune(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole") and done.mean == whole.mean
    seen: list[Any] = []
    assert tune(tmp_path / "run", resume=True, on_event=seen.append) == done
    assert {event.type for event in seen} == {"note"}  # about the data; nothing is trained
    assert not (tmp_path / "run" / "seeds").exists()


def test_a_kill_during_the_final_cleanup(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining files of the seeds have been renamed by then, and the run is finished."""

    def crash(*arguments: object, **options: object) -> None:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr("regard.files.durable_folder.DurableFolder.remove_work", crash)
        tune(tmp_path / "run")
    report = tune(tmp_path / "run", resume=True)
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report.to_dict() == {"output": str(tmp_path / "run"), **document}


def test_files_may_be_paths(tune: Tune, files: Path, tmp_path: Path) -> None:
    report = tune(tmp_path / "run", train=files / "train.tsv", dev=files / "dev.tsv")
    assert evaluate(tmp_path / "run", files / "dev.tsv").metrics.items() >= report.best.scores.items()


def test_f1_is_of_the_class_that_was_rarer_in_training(tune: Tune, tmp_path: Path) -> None:
    data = {"train": "neg" * 3, "dev": "neg"}
    for name, extra in data.items():
        rows = "".join(f"the film {n} is good\tpos\n" for n in range(8)) + "".join(
            f"so dull {n}\tneg\n" for n in range(len(extra) * 2)
        )
        (tmp_path / f"{name}.tsv").write_text(rows, encoding="utf-8")
    tune(tmp_path / "run", train=str(tmp_path / "train.tsv"), dev=str(tmp_path / "dev.tsv"))
    solved = load_fine_tuned(tmp_path / "run")
    assert solved.task.to_dict()["positive"] == "pos"  # 8 of 26 in training, although it is the larger class in dev


def test_an_unknown_label_in_dev_is_an_error(tune: Tune, files: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("the film is good\tpos\nso long\tmixed\nno\tneg\n", encoding="utf-8")
    with pytest.raises(
        InputError,
        match=r"other.tsv line 2: .*'mixed' .*training data.* 'neg', 'pos'",
    ):
        tune(tmp_path / "run", dev=str(other))


def test_divergence_is_reported(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.errors import RegardError
    from regard.tasks.text_classification import TextClassification

    plain = TextClassification.loss
    monkeypatch.setattr(TextClassification, "loss", lambda *arguments: plain(*arguments) * float("inf"))
    with pytest.raises(RegardError, match=r"diverged.*training\.learning_rate"):
        tune(tmp_path / "run")


def test_a_file_too_small_to_be_split(tune: Tune, tmp_path: Path) -> None:
    small = tmp_path / "small.tsv"
    small.write_text("the film is good\tpos\nno\tneg\n", encoding="utf-8")
    with pytest.raises(InputError, match="part 2 of the split"):
        tune(tmp_path / "run", train=str(small), dev=None)


def test_frozen_and_fine_tuned_are_reported_together(tune: Tune, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        tune(tmp_path / "run", both=True, on_event=crash_after(14))  # during the second run
    report = tune(tmp_path / "run", both=True, resume=True)
    frozen = json.loads((tmp_path / "run" / "frozen" / "report.json").read_text())
    assert frozen["settings"]["training"]["frozen"] is True and report.settings["training"]["frozen"] is False
    assert report.beside == {"frozen": {"mean": frozen["mean"], "deviation": frozen["deviation"]}}
    assert f"| frozen |  | {frozen['mean']['accuracy']:.2f} ± 0.00 |" in (tmp_path / "run" / "report.md").read_text()
    assert weights(tmp_path / "run") != weights(tmp_path / "run" / "frozen")
