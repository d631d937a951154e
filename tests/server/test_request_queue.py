"""The request queue: fairness between tabs, 429 under load, and cancellation when a client disconnects."""

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
from regard.cancellation import Cancelled, check_cancelled, should_stop
from regard.checkpoints.loaded_model import LoadedModel
from regard.models import Gpt, GptConfig
from regard.nn.fast.fused_step import supports_fused_step
from regard.nn.recording import record
from regard.nn.stack import Stack
from regard.server.studio.model_registry import ModelRegistry
from regard.server.studio.request_queue import (
    RequestQueue,
    interruptible,
    use_threads,
)
from regard.server.studio.studio import Studio
from regard.server.studio.studio_verbs import TAB_HEADER
from tests.server.conftest import BEARER, create_app, run_verb_stub

SOON = 30


class Gate:
    """A route that waits at a gate and records which requests began and how they ended."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun: list[str] = []
        self.ended: dict[str, str] = {}
        self.changed = threading.Condition()

    def __call__(self, registry: object, arguments: Any) -> dict[str, object]:
        name = arguments["name"]
        self.notify(lambda: self.begun.append(name))
        outcome = "left"
        try:
            while not self.open.wait(0.01):
                check_cancelled()
            outcome = "done"
        finally:
            self.notify(lambda: self.ended.__setitem__(name, outcome))
        return {"name": name}

    def notify(self, change: Callable[[], object]) -> None:
        with self.changed:
            change()
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, SOON), (self.begun, self.ended)


class PendingRequest:
    """A request in progress. `leave` closes its connection, like a closed browser tab."""

    def __init__(self, address: str, name: str, tab: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=SOON)
        headers = {**BEARER, "Content-Type": "application/json", TAB_HEADER: tab}
        self.connection.request("POST", "/v1/fill", json.dumps({"name": name}), headers)

    def answer(self) -> tuple[int, dict[str, str], Any]:
        response = self.connection.getresponse()
        return response.status, dict(response.getheaders()), json.loads(response.read())

    def leave(self) -> None:
        self.connection.close()


@contextmanager
def open_studio(run_app: Callable[[Starlette], str], **limits: int) -> Iterator[tuple[Gate, str, RequestQueue]]:
    gate, queue = Gate(), RequestQueue(**limits)
    try:
        yield gate, run_app(create_app(ModelRegistry([]), run_verb=run_verb_stub(fill=gate), queue=queue)), queue
    finally:
        gate.open.set()


def test_a_disconnected_request_is_not_computed(run_app: Callable[[Starlette], str]) -> None:
    with open_studio(run_app, max_running=1) as (gate, address, _):
        first = PendingRequest(address, "first", "a")
        gate.wait(lambda: gate.begun == ["first"])
        queued, stays = PendingRequest(address, "queued", "b"), PendingRequest(address, "stays", "c")
        queued.leave()
        first.leave()
        gate.wait(lambda: gate.ended == {"first": "left"})  # although nobody has opened the gate
        gate.wait(lambda: "stays" in gate.begun)
        gate.open.set()
        assert stays.answer()[2] == {"name": "stays"}
        assert "queued" not in gate.begun and gate.ended == {"first": "left", "stays": "done"}


def test_tabs_take_turns_even_if_one_sends_many_requests(run_app: Callable[[Starlette], str]) -> None:
    with open_studio(run_app, max_running=1, max_waiting_per_tab=5) as (gate, address, queue):
        greedy = [PendingRequest(address, f"a{number}", "a") for number in range(1)]
        gate.wait(lambda: gate.begun == ["a0"])
        for number in range(1, 5):
            greedy.append(PendingRequest(address, f"a{number}", "a"))
            _wait_until(lambda number=number: len(queue._waiting.get("a", ())) == number)  # type: ignore[misc]
        other_request = PendingRequest(address, "b0", "b")
        _wait_until(lambda: "b" in queue._waiting)
        gate.open.set()
        assert other_request.answer()[0] == 200
        assert [one.answer()[0] for one in greedy] == [200] * 5
        assert gate.begun.index("b0") <= 2  # after the running request and at most one other


def test_one_tab_cannot_block_the_others(run_app: Callable[[Starlette], str]) -> None:
    with open_studio(run_app, max_running=3, max_running_per_tab=2) as (gate, address, queue):
        pending = [PendingRequest(address, f"a{number}", "a") for number in range(4)]
        _wait_until(lambda: len(queue._waiting.get("a", ())) == 2)
        other = PendingRequest(address, "b", "b")
        gate.wait(lambda: "b" in gate.begun)  # immediately, although two requests of the first tab are waiting
        assert len(gate.begun) == 3
        gate.open.set()
        assert [one.answer()[0] for one in [*pending, other]] == [200] * 5


def test_too_many_requests_get_429(run_app: Callable[[Starlette], str]) -> None:
    with open_studio(run_app, max_running=1, max_running_per_tab=1, max_waiting=3, max_waiting_per_tab=2) as (
        gate,
        address,
        queue,
    ):
        pending = [PendingRequest(address, "a0", "a")]
        gate.wait(lambda: gate.begun == ["a0"])
        for number in (1, 2):
            pending.append(PendingRequest(address, f"a{number}", "a"))
            _wait_until(lambda number=number: len(queue._waiting.get("a", ())) == number)  # type: ignore[misc]
        status, headers, body = PendingRequest(address, "a3", "a").answer()
        assert (status, headers["retry-after"]) == (429, "2")
        assert body["error"].startswith("the studio is busy: 2 requests of this tab are waiting")
        pending.append(PendingRequest(address, "b0", "b"))
        _wait_until(lambda: "b" in queue._waiting)
        status, _, body = PendingRequest(address, "c0", "c").answer()
        assert (status, body["error"]) == (429, "the studio is busy: 3 requests are waiting. Try again in a moment")
        gate.open.set()
        assert [one.answer()[0] for one in pending] == [200] * 4
        assert PendingRequest(address, "c0", "c").answer()[0] == 200  # and there is capacity again


def test_many_disconnected_clients_leave_an_empty_queue(run_app: Callable[[Starlette], str]) -> None:
    # Capacity for all of them: some may arrive after the queue was empty once, and must not block the last one.
    with open_studio(run_app, max_running=2, max_running_per_tab=1, max_waiting=64, max_waiting_per_tab=64) as (
        gate,
        address,
        queue,
    ):
        for turn in range(30):
            PendingRequest(address, f"gone{turn}", f"tab{turn % 3}").leave()
        _wait_until(lambda: not queue._waiting and not queue._running)
        gate.open.set()
        assert PendingRequest(address, "last", "z").answer()[0] == 200


def test_a_model_stops_when_its_client_disconnects(tiny_bert_folder: Path, run_app: Callable[[Starlette], str]) -> None:
    """Many forward passes, as in a scan of heads over texts; only the model itself checks for a disconnect."""
    registry = ModelRegistry([str(tiny_bert_folder)])
    registry.start().join()
    passes, ended = threading.Semaphore(0), threading.Event()

    def many_passes(studio: Studio, arguments: Any) -> dict[str, object]:
        try:
            with studio.models.use(str(tiny_bert_folder)) as (model, _), torch.inference_mode():
                while True:
                    model(torch.tensor([[2, 3]]))
                    passes.release()
        finally:
            ended.set()

    address = run_app(create_app(registry, run_verb=run_verb_stub(fill=many_passes)))
    pending = PendingRequest(address, "", "a")
    assert passes.acquire(timeout=SOON) and passes.acquire(timeout=SOON) and not ended.is_set()
    pending.leave()
    assert ended.wait(SOON)
    with registry.use(str(tiny_bert_folder)):
        pass  # the model is free for others


def _wait_until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(100 * SOON):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come to that")


def test_a_model_stops_between_two_passes(tiny_bert_folder: Path) -> None:
    model, _ = regard.load(tiny_bert_folder)
    left = threading.Event()
    token = should_stop.set(left.is_set)
    try:
        with torch.inference_mode(), interruptible(model):
            model(torch.tensor([[2, 3]]))
            left.set()
            with record(model), pytest.raises(Cancelled):
                model(torch.tensor([[2, 3]]))
    finally:
        should_stop.reset(token)
    with torch.inference_mode():
        model(torch.tensor([[2, 3]]))  # the model's hooks are removed


def test_a_decoder_with_cancellation_uses_its_fast_path() -> None:
    model = Gpt(
        GptConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16)
    ).eval()
    stacks = [part for part in model.modules() if isinstance(part, Stack)]
    token = should_stop.set(lambda: False)
    try:
        with torch.inference_mode(), interruptible(model):
            assert stacks and all(supports_fused_step(one) for one in stacks)
            assert any(part._forward_pre_hooks for part in model.modules())
    finally:
        should_stop.reset(token)
    assert not any(part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize(("parameters", "threads", "expected"), [(1000, 0, 1), (10**9, 0, None), (1000, 2, 2)])
def test_threads_of_a_request(
    parameters: int, threads: int, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for a small model, all for a large one, and never a change for other threads."""
    monkeypatch.setattr("regard.server.studio.request_queue._available_threads", lambda: 3)
    before, found = torch.get_num_threads(), list[int]()

    def request() -> None:
        should_stop.set(lambda: False)
        use_threads(parameters, threads=threads)
        found.append(torch.get_num_threads())

    worker = threading.Thread(target=request)
    worker.start()
    worker.join(10)
    use_threads(parameters, threads=threads)  # not in a worker thread
    assert found == [expected or 3] and torch.get_num_threads() == before
    torch.set_num_threads(before)  # MKL has one number for the process


def test_a_client_waiting_for_a_model_can_disconnect() -> None:
    registry = ModelRegistry(["a"], load=lambda name: LoadedModel(name, nn.Identity(), None))
    registry.start().join(10)
    left, outcomes = threading.Event(), list[str]()
    left.set()

    def wait() -> None:
        should_stop.set(left.is_set)
        try:
            with registry.use("a"):
                outcomes.append("used")
        except Cancelled:
            outcomes.append("left")

    with registry.use("a"):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(SOON)
        assert outcomes == ["left"]
    with registry.use("a"):
        pass  # and the lock is free
