"""Models behind the page: their states, one user at a time, and a second try for what failed."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.models import Gpt, GptConfig
from regard.server.model_registry import ModelRegistry, infer_kind
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.task_folder import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification


def test_models_are_loaded_in_their_order_behind_the_caller() -> None:
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def load(name: str) -> Any:
        seen.append(name)
        begun.set()
        go_on.wait(10)
        return LoadedModel(name, nn.Identity(), None)

    registry = ModelRegistry(["a", "b"], load=load)
    thread = registry.start()
    assert begun.wait(10)
    assert [one["state"] for one in registry.states()] == ["loading", "loading"]
    with pytest.raises(InputError, match="a is still being loaded"), registry.use("a"):
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
        return LoadedModel(name, nn.Identity(), None)

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
    task = TextClassification(["bad", "good"])
    save_fine_tuned(
        FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64), tmp_path / "tuned"
    )
    name = str(tmp_path / "tuned")
    registry = ModelRegistry([name, str(tiny_bert_folder)])
    registry.start().join(60)
    shutil.rmtree(name)
    assert [(one["kind"], one["state"]) for one in registry.states()] == [("tuned", "ready"), ("reader", "ready")]
    with registry.use(name) as (model, reads):
        solved = registry.fine_tuned(name)
        assert solved.model.encoder is model and solved.tokenizer is reads
        assert solved.task.labels == ("bad", "good")
    with pytest.raises(InputError, match="not fine-tuned for a task"):
        registry.fine_tuned(str(tiny_bert_folder))


def test_an_unknown_name_gets_the_nearest() -> None:
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


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"config.json": {"model_type": "bert"}}, "reader"),
        ({"config.json": {"model_type": "gpt2"}}, "writer"),
        ({"config.json": {"model_type": "t5"}}, "writer"),
        ({"config.json": {"model_type": "bert"}, "task.json": {}}, "tuned"),
        ({"config.json": {"model_type": "marian"}, "translate.json": {}}, "translator"),
        ({"config.json": []}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_folder_tells(tmp_path: Path, files: dict[str, object], kind: str) -> None:
    for name, document in files.items():
        (tmp_path / name).write_text(json.dumps(document))
    assert infer_kind(str(tmp_path)) == kind


def test_what_is_built_in() -> None:
    assert [infer_kind(name) for name in ("regard-bert", "regard-de-en", "regard-gpt")] == [
        "reader",
        "translator",
        "writer",
    ]


def test_what_has_no_folder_tells_once_it_is_loaded() -> None:
    assert infer_kind("somebody/gpt") == "unknown"
    small = GptConfig(
        vocab_size=10,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    assert infer_kind("somebody/gpt", LoadedModel("a", Gpt(small), None)) == "writer"
    assert infer_kind("somebody/bert", LoadedModel("a", nn.Identity(), None)) == "reader"


def test_a_vanished_folder_stays_what_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "task.json").write_text("{}")
    registry = ModelRegistry([str(folder)])
    shutil.rmtree(folder)
    registry.start().join()
    assert [(one["kind"], one["state"]) for one in registry.states()] == [("tuned", "failed")]
