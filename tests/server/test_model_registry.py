"""The model registry: loading states, exclusive use, and another attempt after a failure."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.server.studio.model_registry import ModelRegistry, ModelState
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification


def test_models_are_loaded_in_order_in_the_background() -> None:
    started, go_on, load_order = threading.Event(), threading.Event(), []

    def load(name: str) -> Any:
        load_order.append(name)
        started.set()
        go_on.wait(10)
        return LoadedModel(name, nn.Identity(), None)

    registry = ModelRegistry(["a", "b"], load=load)
    thread = registry.start()
    assert started.wait(10)
    assert [one.state for one in registry.states()] == ["loading", "loading"]
    with pytest.raises(InputError, match="a is still being loaded"), registry.use("a"):
        pass
    go_on.set()
    thread.join(10)
    assert load_order == ["a", "b"]
    states: dict[str, Any] = {"state": "ready", "error": "", "capabilities": [], "num_parameters": 0}
    assert registry.states() == [ModelState(name=name, **states) for name in ("a", "b")]


def test_a_failed_load_reports_the_error_and_is_retried_on_request(tmp_path: Any) -> None:
    folder = tmp_path / "model"

    def load(name: str) -> Any:
        if name == "bad":
            raise RuntimeError("out of luck")
        if not folder.is_dir():
            raise InputError(f"{name}: no such folder")
        return LoadedModel(name, nn.Identity(), None)

    registry = ModelRegistry(["bad", "gone"], load=load)
    registry.start().join(10)
    assert [(one.state, one.error) for one in registry.states()] == [
        ("failed", "RuntimeError: out of luck"),
        ("failed", "gone: no such folder"),
    ]
    with pytest.raises(InputError, match="gone could not be loaded: gone: no such folder"), registry.use("gone"):
        pass
    folder.mkdir()
    with registry.use("gone") as (model, tokenizer):
        assert isinstance(model, nn.Identity) and tokenizer is None
    assert (registry.states()[1].state, registry.states()[1].error) == ("ready", "")


def test_a_fine_tuned_model_is_loaded_once_with_its_head(tiny_bert_folder: Path, tmp_path: Path) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = TextClassification(["bad", "good"])
    save_fine_tuned(
        FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64), tmp_path / "tuned"
    )
    name = str(tmp_path / "tuned")
    registry = ModelRegistry([name, str(tiny_bert_folder)])
    registry.start().join(60)
    shutil.rmtree(name)
    tuned, plain = registry.states()
    assert (tuned.state, tuned.task, plain.state, plain.task) == ("ready", "classify", "ready", None)
    assert "fine-tuned" in (tuned.capabilities or ()) and "fine-tuned" not in (plain.capabilities or ())
    with registry.use(name) as loaded:
        assert loaded.fine_tuned.model.encoder is loaded.model and loaded.fine_tuned.tokenizer is loaded.tokenizer
        assert loaded.fine_tuned.task.labels == ("bad", "good")


def test_an_unknown_name_gets_a_suggestion() -> None:
    with (
        pytest.raises(InputError, match="did you mean 'regard-bert'"),
        ModelRegistry(["regard-bert"]).use("regard-brt"),
    ):
        pass


def test_two_users_wait_for_each_other() -> None:
    registry = ModelRegistry(["a"], load=lambda name: LoadedModel(name, nn.Identity(), None))
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


def test_a_deleted_folder_keeps_its_capabilities(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "task.json").write_text("{}")
    registry = ModelRegistry([str(folder)])
    shutil.rmtree(folder)
    registry.start().join()
    assert [(one.capabilities, one.state) for one in registry.states()] == [(["fine-tuned"], "failed")]


def test_a_built_in_model_is_loaded_when_it_is_asked_for() -> None:
    loaded: list[str] = []

    def load(name: str) -> Any:
        loaded.append(name)
        return LoadedModel(name, nn.Identity(), None)

    registry = ModelRegistry([], load=load)
    for _ in range(2):
        with registry.use("regard-bert") as model:
            assert model.name == "regard-bert"
    assert loaded == ["regard-bert"]
    with pytest.raises(InputError, match="has no model"), registry.use("regard-brt"):
        pass
