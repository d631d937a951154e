"""The models of a studio: states while they are loaded, another attempt after a failure, and processes on demand."""

from __future__ import annotations

import asyncio
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.server.errors import RequestError
from regard.server.models import registry as registry_module
from regard.server.models.registry import ModelOptions, ModelRegistry, ModelState
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from tests.parity.published import publish
from tests.server.coroutines import run_coroutine
from tests.server.local import LOCAL, LocalProcess, local_registry, run_verb_stub


def stub(name: str) -> Any:
    return LoadedModel(name, nn.Linear(1, 1), None)


def new_registry(names: list[str], load: Any = stub, run_verb: Any = None) -> ModelRegistry:
    return ModelRegistry(names, LOCAL, create=partial(LocalProcess, load=load, run_verb=run_verb))


def load(registry: ModelRegistry, name: str) -> LoadedModel:
    """The model of the process for verbs."""
    process = run_coroutine(registry.process(registry.named(name), "verbs"))
    assert isinstance(process, LocalProcess)
    return process.served.loaded


def test_a_model_that_cannot_predict_labels_is_named_by_its_task(tmp_path: Path) -> None:
    publish("bert", "TokenClassification", tmp_path / "tags")
    create = partial(LocalProcess, load=load_model, run_verb=None)
    registry = ModelRegistry([str(tmp_path / "tags")], ModelOptions(), create=create)

    async def choose() -> None:
        await registry.choose("predict", "tags")

    with pytest.raises(RequestError, match=r"tags, a model for tag, cannot .* POST /v1/predict"):
        run_coroutine(choose())


def test_models_are_loaded_in_order_in_the_background() -> None:
    started, go_on, load_order = threading.Event(), threading.Event(), []

    def load(name: str) -> Any:
        load_order.append(name)
        started.set()
        go_on.wait(60)
        return stub(name)

    async def run() -> None:
        registry = new_registry(["a", "b"], load)
        preparing = asyncio.ensure_future(registry.prepare())
        await asyncio.to_thread(started.wait, 60)
        assert [one.state for one in registry.states()] == ["loading", "loading"]
        waiting = asyncio.ensure_future(registry.process("a", "verbs"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        go_on.set()
        await preparing
        assert (await waiting).state == "ready" and load_order == ["a", "b"]
        states: dict[str, Any] = {"state": "ready", "error": "", "capabilities": [], "num_parameters": 2}
        assert registry.states() == [ModelState(name=name, **states) for name in ("a", "b")]

    run_coroutine(run())


def test_a_failed_load_reports_the_error_and_is_retried_on_request(tmp_path: Any) -> None:
    folder = tmp_path / "model"

    def load_folder(name: str) -> Any:
        if name == "bad":
            raise RuntimeError("out of luck")
        if not folder.is_dir():
            raise InputError(f"{name}: no such folder")
        return stub(name)

    registry = local_registry(["bad", "gone"], load=load_folder)
    bad, gone = registry.states()
    assert bad.state == gone.state == "failed"
    assert "RuntimeError" in bad.error and "out of luck" in bad.error and "no such folder" in gone.error
    with pytest.raises(InputError, match="gone could not be loaded: gone: no such folder"):
        load(registry, "gone")
    folder.mkdir()
    loaded = load(registry, "gone")
    assert isinstance(loaded.model, nn.Linear) and loaded.tokenizer is None
    assert (registry.states()[1].state, registry.states()[1].error) == ("ready", "")


def test_a_fine_tuned_model_is_loaded_once_with_its_head(tiny_bert_folder: Path, tmp_path: Path) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = TextClassification(["bad", "good"])
    save_fine_tuned(
        FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64), tmp_path / "tuned"
    )
    name = str(tmp_path / "tuned")
    registry = local_registry([name, str(tiny_bert_folder)])
    shutil.rmtree(name)
    tuned, plain = registry.states()
    assert (tuned.state, tuned.task, plain.state, plain.task) == ("ready", "classify", "ready", None)
    assert "fine-tuned" in (tuned.capabilities or ()) and "fine-tuned" not in (plain.capabilities or ())
    loaded = load(registry, name)
    assert loaded.fine_tuned.model.encoder is loaded.model and loaded.fine_tuned.tokenizer is loaded.tokenizer
    assert loaded.fine_tuned.task.labels == ("bad", "good")


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'regard-bert'"):
        new_registry(["regard-bert"]).named("regard-brt")


def test_two_users_wait_for_each_other() -> None:
    entered, leave, order = threading.Event(), threading.Event(), []

    def fill(host: object, arguments: Any) -> dict[str, object]:
        order.append(f"{arguments['name']} enters")
        entered.set()
        leave.wait(60)
        order.append(f"{arguments['name']} leaves")
        return {}

    async def run() -> None:
        process = await new_registry(["a"], run_verb=run_verb_stub(fill=fill)).process("a", "verbs")

        def use(name: str) -> Any:
            message = {"verb": "fill", "arguments": {"name": name}, "form": "view", "seconds": 60, "max_items": 1}
            return asyncio.ensure_future(process.call(name, "verb", {**message, "paths": {}, "images": None}))

        first = use("first")
        await asyncio.to_thread(entered.wait, 60)
        second = use("second")
        await asyncio.sleep(0.05)
        leave.set()
        await asyncio.gather(first, second)

    run_coroutine(run())
    assert order == ["first enters", "first leaves", "second enters", "second leaves"]


def test_a_deleted_folder_keeps_its_capabilities(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "task.json").write_text("{}")
    registry = local_registry(
        ["first", str(folder)], load=lambda name: stub(name) if name == "first" else load_model(name)
    )
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="no such folder"):
        load(registry, str(folder))
    state = registry.states()[1]
    assert (state.capabilities, state.state) == (["fine-tuned"], "failed")


def test_a_built_in_model_is_loaded_when_it_is_asked_for() -> None:
    loaded: list[str] = []

    def load_stub(name: str) -> Any:
        loaded.append(name)
        return stub(name)

    registry = new_registry([], load_stub)
    for _ in range(2):
        assert load(registry, "regard-bert").name == "regard-bert"
    assert loaded == ["regard-bert"]
    with pytest.raises(InputError, match="has no model"):
        load(registry, "regard-brt")


def test_idle_processes_end_and_are_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "IDLE_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(registry_module, "MAX_IDLE", 2)

    async def run() -> None:
        registry = new_registry([])
        await registry.prepare()
        names = ["regard-bert", "regard-gpt", "regard-embed"]
        first, second, third = [await registry.process(registry.named(name), "verbs") for name in names]
        async with asyncio.timeout(30):
            while first.state != "closed":  # used longest ago
                await asyncio.sleep(0.01)
        assert second.state == third.state == "ready"
        again = await registry.process("regard-bert", "verbs")
        assert again is not first and again.state == "ready"
        registry.close()

    run_coroutine(run())
