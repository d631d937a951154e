"""Tabs take turns, a crowd is told to come back, and what nobody waits for is not computed: with real requests."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from starlette.applications import Starlette
from torch import nn

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.models import Gpt, GptConfig
from regard.nn.fast.fused_step import supports_fused_step
from regard.nn.recording import record
from regard.nn.stack import Stack
from regard.server.app import TAB_HEADER
from regard.server.model_registry import ModelRegistry
from regard.server.request_queue import ClientDisconnected, RequestQueue, _disconnected, check_connected, interruptible
from regard.server.studio import Studio
from tests.server.conftest import BEARER, create_app, run_instead

SOON = 30


class Gate:
    """A route that waits at a gate, and tells what it has begun and how it ended."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun: list[str] = []
        self.ended: dict[str, str] = {}
        self.changed = threading.Condition()

    def __call__(self, registry: object, arguments: Any) -> dict[str, object]:
        name = arguments["name"]
        self.tell(lambda: self.begun.append(name))
        how = "left"
        try:
            while not self.open.wait(0.01):
                check_connected()
            how = "done"
        finally:
            self.tell(lambda: self.ended.__setitem__(name, how))
        return {"name": name}

    def tell(self, change: Callable[[], object]) -> None:
        with self.changed:
            change()
            self.changed.notify_all()

    def wait(self, reached: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(reached, SOON), (self.begun, self.ended)


class Asked:
    """A question that is under way. `leave` closes its connection, as a tab does that is closed."""

    def __init__(self, address: str, name: str, tab: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=SOON)
        headers = {**BEARER, "Content-Type": "application/json", TAB_HEADER: tab}
        self.connection.request("POST", "/v1/gate", json.dumps({"name": name}), headers)

    def answer(self) -> tuple[int, dict[str, str], Any]:
        response = self.connection.getresponse()
        return response.status, dict(response.getheaders()), json.loads(response.read())

    def leave(self) -> None:
        self.connection.close()


@contextmanager
def opened(run_app: Callable[[Starlette], str], **limits: int) -> Iterator[tuple[Gate, str, RequestQueue]]:
    gate, queue = Gate(), RequestQueue(**limits)
    try:
        yield gate, run_app(create_app(ModelRegistry([]), run_verb=run_instead(gate=gate), queue=queue)), queue
    finally:
        gate.open.set()


def test_who_leaves_is_not_computed_for(run_app: Callable[[Starlette], str]) -> None:
    with opened(run_app, max_running=1) as (gate, address, _):
        first = Asked(address, "first", "a")
        gate.wait(lambda: gate.begun == ["first"])
        queued, stays = Asked(address, "queued", "b"), Asked(address, "stays", "c")
        queued.leave()
        first.leave()
        gate.wait(lambda: gate.ended == {"first": "left"})  # though nobody has opened the gate
        gate.wait(lambda: "stays" in gate.begun)
        gate.open.set()
        assert stays.answer()[2] == {"name": "stays"}
        assert "queued" not in gate.begun and gate.ended == {"first": "left", "stays": "done"}


def test_tabs_take_turns_however_much_one_of_them_asks(run_app: Callable[[Starlette], str]) -> None:
    with opened(run_app, max_running=1, max_waiting_per_tab=5) as (gate, address, queue):
        greedy = [Asked(address, f"a{number}", "a") for number in range(1)]
        gate.wait(lambda: gate.begun == ["a0"])
        for number in range(1, 5):
            greedy.append(Asked(address, f"a{number}", "a"))
            _until(lambda number=number: len(queue._waiting.get("a", ())) == number)  # type: ignore[misc]
        modest = Asked(address, "b0", "b")
        _until(lambda: "b" in queue._waiting)
        gate.open.set()
        assert modest.answer()[0] == 200
        assert [one.answer()[0] for one in greedy] == [200] * 5
        assert gate.begun.index("b0") <= 2  # behind the one that was under way and at most one other


def test_one_tab_leaves_room_for_others(run_app: Callable[[Starlette], str]) -> None:
    with opened(run_app, max_running=3, max_running_per_tab=2) as (gate, address, queue):
        asked = [Asked(address, f"a{number}", "a") for number in range(4)]
        _until(lambda: len(queue._waiting.get("a", ())) == 2)
        other = Asked(address, "b", "b")
        gate.wait(lambda: "b" in gate.begun)  # at once, although two of the first tab wait
        assert len(gate.begun) == 3
        gate.open.set()
        assert [one.answer()[0] for one in [*asked, other]] == [200] * 5


def test_a_crowd_is_told_to_come_back(run_app: Callable[[Starlette], str]) -> None:
    with opened(run_app, max_running=1, max_running_per_tab=1, max_waiting=3, max_waiting_per_tab=2) as (
        gate,
        address,
        queue,
    ):
        asked = [Asked(address, "a0", "a")]
        gate.wait(lambda: gate.begun == ["a0"])
        for number in (1, 2):
            asked.append(Asked(address, f"a{number}", "a"))
            _until(lambda number=number: len(queue._waiting.get("a", ())) == number)  # type: ignore[misc]
        status, headers, said = Asked(address, "a3", "a").answer()
        assert (status, headers["retry-after"]) == (429, "2")
        assert said["error"].startswith("the studio is busy: 2 requests of this tab are waiting")
        asked.append(Asked(address, "b0", "b"))
        _until(lambda: "b" in queue._waiting)
        status, _, said = Asked(address, "c0", "c").answer()
        assert (status, said["error"]) == (429, "the studio is busy: 3 requests are waiting. Try again in a moment")
        gate.open.set()
        assert [one.answer()[0] for one in asked] == [200] * 4
        assert Asked(address, "c0", "c").answer()[0] == 200  # and there is room again


def test_many_who_come_and_go_leave_nothing_behind(run_app: Callable[[Starlette], str]) -> None:
    # Room for all of them: some may arrive after the line was empty once, and must not keep the last one out.
    with opened(run_app, max_running=2, max_running_per_tab=1, max_waiting=64, max_waiting_per_tab=64) as (
        gate,
        address,
        queue,
    ):
        for turn in range(30):
            Asked(address, f"gone{turn}", f"tab{turn % 3}").leave()
        _until(lambda: not queue._waiting and not queue._running)
        gate.open.set()
        assert Asked(address, "last", "z").answer()[0] == 200


def test_a_model_stops_when_its_asker_leaves(tiny_bert_folder: Path, run_app: Callable[[Starlette], str]) -> None:
    """As a census of heads over many texts does: pass after pass, and no look at who waits but the model's own."""
    registry = ModelRegistry([str(tiny_bert_folder)])
    registry.start().join()
    passes, ended = threading.Semaphore(0), threading.Event()

    def census(studio: Studio, arguments: Any) -> dict[str, object]:
        try:
            with studio.models.use(str(tiny_bert_folder)) as (model, _), torch.inference_mode():
                while True:
                    model(torch.tensor([[2, 3]]))
                    passes.release()
        finally:
            ended.set()

    address = run_app(create_app(registry, run_verb=run_instead(gate=census)))
    asked = Asked(address, "", "a")
    assert passes.acquire(timeout=SOON) and passes.acquire(timeout=SOON) and not ended.is_set()
    asked.leave()
    assert ended.wait(SOON)
    with registry.use(str(tiny_bert_folder)):
        pass  # the model is free for others


def _until(reached: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(100 * SOON):
        if reached():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come to that")


def test_a_model_stops_between_two_passes(tiny_bert_folder: Path) -> None:
    model, _ = regard.load(tiny_bert_folder)
    left = threading.Event()
    token = _disconnected.set(left)
    try:
        with torch.inference_mode(), interruptible(model):
            model(torch.tensor([[2, 3]]))
            left.set()
            with record(model), pytest.raises(ClientDisconnected):
                model(torch.tensor([[2, 3]]))
    finally:
        _disconnected.reset(token)
    with torch.inference_mode():
        model(torch.tensor([[2, 3]]))  # nothing of it is left on the model


def test_a_watched_decoder_takes_its_quick_way() -> None:
    model = Gpt(
        GptConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16)
    ).eval()
    stacks = [part for part in model.modules() if isinstance(part, Stack)]
    token = _disconnected.set(threading.Event())
    try:
        with torch.inference_mode(), interruptible(model):
            assert stacks and all(supports_fused_step(one) for one in stacks)
            assert any(part._forward_pre_hooks for part in model.modules())
    finally:
        _disconnected.reset(token)
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_who_waits_for_a_model_can_leave() -> None:
    registry = ModelRegistry(["a"], load=lambda name: LoadedModel(name, nn.Identity(), None))
    registry.start().join(10)
    left, seen = threading.Event(), list[str]()
    left.set()

    def wait() -> None:
        _disconnected.set(left)
        try:
            with registry.use("a"):
                seen.append("used")
        except ClientDisconnected:
            seen.append("left")

    with registry.use("a"):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(SOON)
        assert seen == ["left"]
    with registry.use("a"):
        pass  # and the lock is free
