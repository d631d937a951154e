"""Models behind the page: their states, one user at a time, and a second try for what failed."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import regard
from regard.errors import InputError
from regard.server.model_registry import ModelRegistry
from regard.tasks.folder import Solved, write_task
from regard.tasks.model import Tuned
from regard.tasks.texts import Classify


def test_models_are_loaded_in_their_order_behind_the_caller() -> None:
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def load(name: str) -> Any:
        seen.append(name)
        begun.set()
        go_on.wait(10)
        return nn.Identity(), None

    registry = ModelRegistry(["a", "b"], load=load)
    thread = registry.start()
    assert begun.wait(10)
    assert [one["state"] for one in registry.states()] == ["loading", "loading"]
    with pytest.raises(InputError, match="a is still being loaded"), registry.use_any("a"):
        pass
    go_on.set()
    thread.join(10)
    assert seen == ["a", "b"]
    states = {"kind": "reader", "state": "ready", "error": "", "sees": False}
    assert registry.states() == [{"name": name, **states} for name in ("a", "b")]


def test_one_that_fails_says_why_and_is_tried_again_when_asked_for(tmp_path: Any) -> None:
    folder = tmp_path / "model"

    def load(name: str) -> Any:
        if name == "bad":
            raise RuntimeError("out of luck")
        if not folder.is_dir():
            raise InputError(f"{name}: no such folder")
        return nn.Identity(), None

    registry = ModelRegistry(["bad", "gone"], load=load)
    registry.start().join(10)
    assert [(one["state"], one["error"]) for one in registry.states()] == [
        ("failed", "RuntimeError: out of luck"),
        ("failed", "gone: no such folder"),
    ]
    with pytest.raises(InputError, match="gone could not be loaded: gone: no such folder"), registry.use("gone"):
        pass
    folder.mkdir()
    with registry.use("gone") as (model, tokenizer):
        assert isinstance(model, nn.Identity) and tokenizer is None
    assert registry.states()[1] == {"name": "gone", "kind": "reader", "state": "ready", "error": "", "sees": False}


def test_a_tuned_model_is_read_once_and_whole(tiny_bert_folder: Path, tmp_path: Path) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = Classify(["bad", "good"])
    write_task(Solved(task, Tuned.new(encoder, task).eval(), tokenizer, 64), tmp_path / "tuned")
    name = str(tmp_path / "tuned")
    registry = ModelRegistry([name, str(tiny_bert_folder)])
    registry.start().join(60)
    shutil.rmtree(name)
    assert [(one["kind"], one["state"]) for one in registry.states()] == [("tuned", "ready"), ("reader", "ready")]
    with registry.use(name) as (model, reads):
        solved = registry.solved(name)
        assert solved.model.encoder is model and solved.tokenizer is reads
        assert solved.task.labels == ("bad", "good")
    with pytest.raises(InputError, match="not tuned for a task"):
        registry.solved(str(tiny_bert_folder))


def test_an_unknown_name_gets_the_nearest() -> None:
    with (
        pytest.raises(InputError, match="did you mean 'regard-bert'"),
        ModelRegistry(["regard-bert"]).use("regard-brt"),
    ):
        pass


def test_two_users_wait_for_each_other() -> None:
    registry = ModelRegistry(["a"], load=lambda name: (nn.Identity(), None))
    registry.start().join(10)
    entered, leave, order = threading.Event(), threading.Event(), []

    def first() -> None:
        with registry.use("a"):
            entered.set()
            leave.wait(10)
            order.append("first leaves")

    def second() -> None:
        entered.wait(10)
        leave.set()
        with registry.use("a"):
            order.append("second enters")

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert order == ["first leaves", "second enters"]
