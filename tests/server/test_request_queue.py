"""Requests of many tabs: turns between them, 429 under load, and cancellation when a client disconnects."""

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

import regard
from regard.cancellation import Cancelled, check_cancelled, should_stop
from regard.models import Gpt, GptConfig
from regard.nn.fast.fused_step import supports_fused_step
from regard.nn.recording import record
from regard.nn.stack import Stack
from regard.server.http.access import TAB_HEADER
from regard.server.http.endpoint import Limits
from regard.server.models.verb_job import VerbJob, interruptible, use_threads
from tests.server.conftest import BEARER, create_app
from tests.server.local import LocalProcess, local_registry, run_verb_stub, stub_registry

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

    def __init__(self, address: str, name: str, tab: str, model: str = "regard-bert") -> None:
        self.connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=SOON)
        headers = {**BEARER, "Content-Type": "application/json", TAB_HEADER.decode(): tab}
        self.connection.request("POST", "/v1/fill", json.dumps({"name": name, "model": model}), headers)

    def answer(self) -> tuple[int, dict[str, str], Any]:
        response = self.connection.getresponse()
        return response.status, dict(response.getheaders()), json.loads(response.read())

    def leave(self) -> None:
        self.connection.close()


class OpenStudio:
    """A studio whose models wait at a gate."""

    def __init__(self, run_app: Callable[[Starlette], str], total: int, per_tab: int) -> None:
        self.gate = Gate()
        self.registry = stub_registry(run_verb_stub(fill=self.gate))
        limits = Limits(max_concurrent_requests=total, max_client_requests=per_tab)
        app = create_app(self.registry, limits=limits)
        self.slots = app.state.shed._slots
        self.address = run_app(app)

    def waiting(self, tab: str, model: str = "regard-bert") -> int:
        """How many requests of a tab wait for a model."""
        process = self.registry._running.get((model, "verbs"))
        if process is None or not process.starting.done():
            return 0
        assert isinstance(process, LocalProcess)
        return len(process.worker._queue._lines.get(f"tab {tab}", ()))


@contextmanager
def open_studio(
    run_app: Callable[[Starlette], str], *, total: int = 64, per_tab: int = 64
) -> Iterator[tuple[Gate, str, OpenStudio]]:
    studio = OpenStudio(run_app, total, per_tab)
    try:
        yield studio.gate, studio.address, studio
    finally:
        studio.gate.open.set()


def test_a_disconnected_request_is_not_computed(run_app: Callable[[Starlette], str]) -> None:
    with open_studio(run_app) as (gate, address, studio):
        first = PendingRequest(address, "first", "a")
        gate.wait(lambda: gate.begun == ["first"])
        queued, stays = PendingRequest(address, "queued", "b"), PendingRequest(address, "stays", "c")
        _wait_until(lambda: studio.waiting("b") == studio.waiting("c") == 1)
        queued.leave()
        _wait_until(lambda: not studio.waiting("b"))
        first.leave()
        gate.wait(lambda: gate.ended == {"first": "left"})  # although nobody has opened the gate
        gate.wait(lambda: "stays" in gate.begun)
        gate.open.set()
        assert stays.answer()[2] == {"name": "stays"}
        assert "queued" not in gate.begun and gate.ended == {"first": "left", "stays": "done"}


def test_tabs_take_turns_even_if_one_sends_many_requests(run_app: Callable[[Starlette], str]) -> None:
    with open_studio(run_app) as (gate, address, studio):
        greedy = [PendingRequest(address, f"a{number}", "a") for number in range(1)]
        gate.wait(lambda: gate.begun == ["a0"])
        for number in range(1, 5):
            greedy.append(PendingRequest(address, f"a{number}", "a"))
            _wait_until(lambda number=number: studio.waiting("a") == number)  # type: ignore[misc]
        other_request = PendingRequest(address, "b0", "b")
        _wait_until(lambda: studio.waiting("b") == 1)
        gate.open.set()
        assert other_request.answer()[0] == 200
        assert [one.answer()[0] for one in greedy] == [200] * 5
        assert gate.begun.index("b0") <= 2  # after the running request and at most one other


def test_one_tab_cannot_block_the_others(run_app: Callable[[Starlette], str]) -> None:
    """Who waits for a model does not hold up those who use another one."""
    with open_studio(run_app) as (gate, address, studio):
        pending = [PendingRequest(address, f"a{number}", "a") for number in range(4)]
        _wait_until(lambda: studio.waiting("a") == 3)
        other = PendingRequest(address, "b", "b", model="regard-gpt")
        gate.wait(lambda: "b" in gate.begun)  # immediately, although three requests of the first tab are waiting
        assert len(gate.begun) == 2
        gate.open.set()
        assert [one.answer()[0] for one in [*pending, other]] == [200] * 5


def test_too_many_requests_get_429(run_app: Callable[[Starlette], str]) -> None:
    with open_studio(run_app, total=4, per_tab=3) as (gate, address, studio):
        pending = [PendingRequest(address, "a0", "a")]
        gate.wait(lambda: gate.begun == ["a0"])
        for number in (1, 2):
            pending.append(PendingRequest(address, f"a{number}", "a"))
            _wait_until(lambda number=number: studio.waiting("a") == number)  # type: ignore[misc]
        status, headers, body = PendingRequest(address, "a3", "a").answer()
        assert (status, headers["retry-after"]) == (429, "2")
        assert body["error"].startswith("the server is busy: it holds 3 requests of this client")
        pending.append(PendingRequest(address, "b0", "b"))
        _wait_until(lambda: studio.waiting("b") == 1)
        status, _, body = PendingRequest(address, "c0", "c").answer()
        assert status == 429 and "holds 4 requests" in body["error"] and "ry again" in body["error"]
        gate.open.set()
        assert [one.answer()[0] for one in pending] == [200] * 4
        assert PendingRequest(address, "c0", "c").answer()[0] == 200  # and there is capacity again


def test_many_disconnected_clients_leave_an_empty_queue(run_app: Callable[[Starlette], str]) -> None:
    # Capacity for all of them: some may arrive after the queue was empty once, and must not block the last one.
    with open_studio(run_app) as (gate, address, studio):
        for turn in range(30):
            PendingRequest(address, f"gone{turn}", f"tab{turn % 3}").leave()
        _wait_until(lambda: not studio.slots.used and not any(studio.waiting(f"tab{number}") for number in range(3)))
        gate.open.set()
        assert PendingRequest(address, "last", "z").answer()[0] == 200


@pytest.mark.long
def test_a_model_stops_when_its_client_disconnects(tiny_bert_folder: Path, run_app: Callable[[Starlette], str]) -> None:
    """Many forward passes, as in a scan of heads over texts; only the model itself checks for a disconnect."""
    passes, ended = threading.Semaphore(0), threading.Semaphore(0)

    def many_passes(host: VerbJob, arguments: Any) -> dict[str, object]:
        try:
            with host.models.use(str(tiny_bert_folder)) as (model, _), torch.inference_mode():
                while True:
                    model(torch.tensor([[2, 3]]))
                    passes.release()
        finally:
            ended.release()

    registry = local_registry([str(tiny_bert_folder)], run_verb=run_verb_stub(fill=many_passes))
    address = run_app(create_app(registry))
    for _ in range(2):  # the second time shows that the model is free for others
        pending = PendingRequest(address, "", "a", model=str(tiny_bert_folder))
        assert passes.acquire(timeout=SOON) and passes.acquire(timeout=SOON) and not ended.acquire(blocking=False)
        pending.leave()
        assert ended.acquire(timeout=SOON)
        while passes.acquire(blocking=False):
            pass


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
    monkeypatch.setattr("regard.server.models.verb_job._available_threads", lambda: 3)
    before, found = torch.get_num_threads(), list[int]()

    def request() -> None:
        should_stop.set(lambda: False)
        use_threads(parameters, threads=threads)
        found.append(torch.get_num_threads())

    worker = threading.Thread(target=request)
    worker.start()
    worker.join(60)
    use_threads(parameters, threads=threads)  # not in a worker thread
    assert found == [expected or 3] and torch.get_num_threads() == before
    torch.set_num_threads(before)  # MKL has one number for the process
