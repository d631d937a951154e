"""Whole fine-tuning runs: what they write, that they learn, and that being cut short changes nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.finetune.evaluate import evaluate
from regard.finetune.report import Report
from regard.tasks.folder import read_task
from regard.tasks.solve import predict

Tune = Callable[..., Report]


class Crash(BaseException):
    """The power goes."""


def crashing(after: int) -> Callable[[Mapping[str, Any]], None]:
    count = 0

    def on_event(event: Mapping[str, Any]) -> None:
        nonlocal count
        count += event["event"] == "step"
        if count == after:
            raise Crash

    return on_event


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_rule_is_learned_and_kept(tune: Tune, files: Path, tmp_path: Path) -> None:
    report = tune(tmp_path / "run", "training.epochs=25")
    assert report.mean["accuracy"] >= 95
    found = evaluate(tmp_path / "run", str(files / "dev.tsv"), device="cpu")
    assert (found.task, found.count, found.metrics) == ("classify", 40, report.best.scores)
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert document["mean"] == report.mean and document["data"]["train"]["examples"] == 96
    assert not (tmp_path / "run" / "seeds").exists()


def test_the_best_epoch_and_the_best_seed_are_kept(tune: Tune, files: Path, tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []
    report = tune(tmp_path / "run", "run.seeds=3", "training.rate=2e-3", on_event=events.append)
    judged = [event for event in events if event["event"] == "evaluation"]
    assert [(event["seed"], event["epoch"]) for event in judged] == [(s, e) for s in range(3) for e in (1, 2, 3)]
    for outcome in report.outcomes:
        mine = [event["accuracy"] for event in judged if event["seed"] == outcome.seed]
        assert outcome.scores["accuracy"] == max(mine) and outcome.epoch == mine.index(max(mine)) + 1
    assert report.best.scores["accuracy"] == max(outcome.scores["accuracy"] for outcome in report.outcomes)
    assert evaluate(tmp_path / "run", str(files / "dev.tsv"), device="cpu").metrics == report.best.scores
    assert f"| {report.best.seed} | {report.best.epoch} | {report.best.scores['accuracy']:.2f} |" in report.markdown()


def test_the_last_epoch_is_judged_once(tune: Tune, tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []
    report = tune(tmp_path / "run", "training.select=last", on_event=events.append)
    assert [event["epoch"] for event in events if event["event"] == "evaluation"] == [3]
    assert report.best.epoch == 3 and report.best.history[:2] == [{}, {}]


def test_patience_ends_a_run(tune: Tune, tmp_path: Path) -> None:
    report = tune(tmp_path / "run", "training.epochs=40", "training.patience=2", "training.rate=1e-9")
    assert report.best.epoch == 1 and len(report.best.history) == 3


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tune: Tune, tmp_path: Path) -> None:
    tune(tmp_path / "a", "training.dropout=0.1")
    tune(tmp_path / "b", "training.dropout=0.1")
    tune(tmp_path / "c", "training.dropout=0.1", "run.seed=1")
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")


@pytest.mark.parametrize("settings", [(), ("training.optimizer=muon",)], ids=["adamw", "muon"])
def test_crashes_change_no_bit(tune: Tune, tmp_path: Path, settings: tuple[str, ...]) -> None:
    settings = (*settings, "run.seeds=2", "training.dropout=0.1", "run.checkpoint_every=2 steps")
    whole = tune(tmp_path / "whole", *settings)
    for number, after in enumerate((1, 3, 9, 14, 20, 2)):
        with pytest.raises(Crash):
            tune(tmp_path / "cut", *settings, resume=number > 0, on_event=crashing(after))
    report = tune(tmp_path / "cut", *settings, resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert [one.scores for one in report.outcomes] == [one.scores for one in whole.outcomes]
    assert [one.history for one in report.outcomes] == [one.history for one in whole.outcomes]


@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_saves_and_ends(tune: Tune, tmp_path: Path) -> None:
    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "run", on_event=on_event)
    assert (tmp_path / "run" / "seeds" / "checkpoints-0" / "step-000000005").is_dir()
    steps: list[int] = []
    tune(
        tmp_path / "run",
        resume=True,
        on_event=lambda event: steps.append(event["step"]) if event["event"] == "step" else None,
    )
    assert steps[0] == 6 and steps[-1] == 36


def test_a_frozen_model_stays_as_it_was(tune: Tune, tmp_path: Path, tiny_bert_folder: Path) -> None:
    import regard

    report = tune(tmp_path / "run", "training.frozen=true")
    before = dict(regard.load(tiny_bert_folder)[0].named_parameters())
    solved = read_task(tmp_path / "run")
    for name, parameter in solved.model.encoder.named_parameters():
        assert torch.equal(parameter, before[name]), name
    assert not torch.equal(solved.model.head.pool[0].weight, before["pooler.linear.weight"])  # type: ignore[index]
    assert report.settings["training"]["frozen"] is True


def test_without_dev_a_part_is_set_aside(tune: Tune, tmp_path: Path) -> None:
    report = tune(tmp_path / "two", dev=None)
    sizes = {name: about["examples"] for name, about in report.data.items()}
    assert sum(sizes.values()) == 96 and sizes.keys() == {"train", "dev"} and 6 <= sizes["dev"] <= 13
    report = tune(tmp_path / "three", dev=None, parts="60/20/20")
    sizes = {name: about["examples"] for name, about in report.data.items()}
    assert sum(sizes.values()) == 96 and 14 <= sizes["test"] <= 24
    assert report.data["test"]["scores"].keys() >= {"accuracy", "f1"}
    with pytest.raises(InputError, match="one of them"):
        tune(tmp_path / "four", parts="60/20/20")


def test_predictions_do_not_see_labels(tune: Tune, tmp_path: Path) -> None:
    from regard.data.examples import Text

    tune(tmp_path / "run")
    solved = read_task(tmp_path / "run")
    device = torch.device("cpu")
    plain, told = (predict(solved, [Text("the film is good", label=label)], device=device) for label in (None, "never"))
    assert plain == told and plain[0]["label"] in ("neg", "pos")


def test_what_cannot_be_gone_on_with_is_refused(tune: Tune, files: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run to resume"):
        tune(tmp_path / "none", resume=True)
    with pytest.raises(Crash):
        tune(tmp_path / "run", on_event=crashing(4))
    with pytest.raises(InputError, match="go on with --resume"):
        tune(tmp_path / "run")
    with pytest.raises(InputError, match=r"training\.epochs was 3 and is 4"):
        tune(tmp_path / "run", "training.epochs=4", resume=True)
    with pytest.raises(InputError, match="data was"):
        tune(tmp_path / "run", dev=str(files / "train.tsv"), resume=True)
    done = tune(tmp_path / "run", resume=True)
    before = weights(tmp_path / "run")
    assert tune(tmp_path / "run", resume=True) == done and weights(tmp_path / "run") == before  # there is nothing to do
    with pytest.raises(InputError, match="no run to resume"):
        tune(tmp_path / "run", "training.epochs=4", resume=True)
    with pytest.raises(InputError, match="holds a model"):
        tune(tmp_path / "run")
    with pytest.raises(InputError, match="holds a run or a model"):
        tune(tmp_path / "run", both=True)
    assert not (tmp_path / "run" / "frozen").exists()


def test_a_kill_amid_the_last_cleaning_up(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the seeds has another name by then, and the run is over."""

    def crash(*arguments: object, **options: object) -> None:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr("regard.train.folder.shutil.rmtree", crash)
        tune(tmp_path / "run")
    report = tune(tmp_path / "run", resume=True)
    assert report.document() == json.loads((tmp_path / "run" / "report.json").read_text())


def test_files_may_be_paths(tune: Tune, files: Path, tmp_path: Path) -> None:
    report = tune(tmp_path / "run", train=files / "train.tsv", dev=files / "dev.tsv")
    assert evaluate(tmp_path / "run", files / "dev.tsv", device="cpu").metrics == report.best.scores


def test_f1_is_of_the_class_that_was_rarer_in_training(tune: Tune, tmp_path: Path) -> None:
    data = {"train": "neg" * 3, "dev": "neg"}
    for name, extra in data.items():
        rows = "".join(f"the film {n} is good\tpos\n" for n in range(8)) + "".join(
            f"so dull {n}\tneg\n" for n in range(len(extra) * 2)
        )
        (tmp_path / f"{name}.tsv").write_text(rows, encoding="utf-8")
    tune(tmp_path / "run", train=str(tmp_path / "train.tsv"), dev=str(tmp_path / "dev.tsv"))
    solved = read_task(tmp_path / "run")
    assert solved.task.document()["positive"] == "pos"  # 8 of 26, though it is the larger class of dev


def test_a_label_that_training_never_saw(tune: Tune, files: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("the film is good\tpos\nso long\tmixed\nno\tneg\n", encoding="utf-8")
    with pytest.raises(
        InputError,
        match=r"other.tsv line 2: the label 'mixed' does not occur in the training data, which has 'neg', 'pos'",
    ):
        tune(tmp_path / "run", dev=str(other))


def test_a_run_that_diverges_says_so(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.errors import RegardError
    from regard.tasks.texts import Classify

    plain = Classify.loss
    monkeypatch.setattr(Classify, "loss", lambda *arguments: plain(*arguments) * float("inf"))
    with pytest.raises(RegardError, match=r"diverged.*training\.rate"):
        tune(tmp_path / "run")


def test_a_file_too_small_to_be_split(tune: Tune, tmp_path: Path) -> None:
    small = tmp_path / "small.tsv"
    small.write_text("the film is good\tpos\nno\tneg\n", encoding="utf-8")
    with pytest.raises(InputError, match="2 examples leave nothing for part 2"):
        tune(tmp_path / "run", train=str(small), dev=None)


def test_frozen_and_tuned_are_reported_together(tune: Tune, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        tune(tmp_path / "run", both=True, on_event=crashing(40))  # amid the second run
    report = tune(tmp_path / "run", both=True, resume=True)
    frozen = json.loads((tmp_path / "run" / "frozen" / "report.json").read_text())
    assert frozen["settings"]["training"]["frozen"] is True and report.settings["training"]["frozen"] is False
    assert report.beside == {"frozen": {"mean": frozen["mean"], "deviation": frozen["deviation"]}}
    assert f"| frozen |  | {frozen['mean']['accuracy']:.2f} ± 0.00 |" in (tmp_path / "run" / "report.md").read_text()
    assert weights(tmp_path / "run") != weights(tmp_path / "run" / "frozen")
