"""The scheduler of a model's process, with services that compute nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from regard.errors import InputError
from regard.server.models.messages import Reply
from regard.server.models.services import PreparedRequest
from regard.server.models.worker import ModelWorker

WAIT = 60.0


class Lengths:
    """A service that answers with the lengths of texts, in batches that wait for `gate`."""

    kind, max_tokens = "length", 100

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []

    def prepare(self, arguments: Mapping[str, Any]) -> PreparedRequest:
        if "" in arguments["inputs"]:
            raise InputError("a text is empty")
        return PreparedRequest([(10, text) for text in arguments["inputs"]], lambda results: results, 10)

    def compute(self, contents: Sequence[str]) -> list[int]:
        self.batches.append(list(contents))
        assert self.gate.wait(WAIT)
        if "crash" in contents:
            raise ZeroDivisionError("of the model")
        return [len(text) for text in contents]


class Replies(list[Reply]):
    """Replies of a worker, without those about batches."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def send(self, replies: list[Reply]) -> None:
        with self._changed:
            self += [reply for reply in replies if reply.number]
            self._changed.notify_all()

    def wait(self, count: int) -> list[Reply]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self) >= count, WAIT), list(self)
        return list(self)


def count_to(
    arguments: Mapping[str, Any], cancelled: threading.Event, emit: Callable[[Any], None]
) -> Generator[Any, None, tuple[Any, int, str]]:
    yield from range(arguments["count"])
    return "counted", arguments["count"], ""


class Prepared:
    """A job that counts to the number that it prepares once `gate` is open."""

    def __init__(self) -> None:
        self.gate, self.reached = threading.Event(), threading.Event()

    def prepare(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.reached.set()
        assert self.gate.wait(WAIT)
        if arguments["text"] == "":
            raise InputError("a text is empty")
        return {"count": len(arguments["text"])}

    __call__ = staticmethod(count_to)


@contextmanager
def running(service: Lengths, replies: Replies, **options: Any) -> Any:
    jobs = {"count": count_to, **options.pop("jobs", {})}
    worker = ModelWorker({"length": service}, jobs, {"echo": dict}, replies.send, **options)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    yield worker
    service.gate.set()
    worker.close()
    thread.join(WAIT)
    assert not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_requests_that_wait_are_computed_together() -> None:
    service, replies = Lengths(), Replies()
    with running(service, replies) as worker:
        service.gate.clear()
        worker.receive((1, "a", "length", {"inputs": ["x"]}))
        wait_until(lambda: len(service.batches) == 1)
        for number, client in enumerate("bcd", start=2):
            worker.receive((number, client, "length", {"inputs": ["y" * number, "z"]}))
        service.gate.set()
        found = {reply.number: reply.payload for reply in replies.wait(4)}
    assert found == {1: [1], 2: [2, 1], 3: [3, 1], 4: [4, 1]}
    assert [len(batch) for batch in service.batches] == [1, 6]


def test_a_cancelled_request_is_not_computed() -> None:
    service, replies = Lengths(), Replies()
    with running(service, replies) as worker:
        service.gate.clear()
        worker.receive((1, "a", "length", {"inputs": ["x"]}))
        wait_until(lambda: len(service.batches) == 1)
        worker.receive((2, "b", "length", {"inputs": ["gone"]}))
        worker.receive((3, "c", "length", {"inputs": ["stays"]}))
        worker.receive((2, "", "cancel", {}))
        worker.receive((1, "", "cancel", {}))  # already running: its result is dropped
        service.gate.set()
        assert [reply.number for reply in replies.wait(1)] == [3]
    assert service.batches == [["x"], ["stays"]]


def test_errors_reach_only_the_requests_they_belong_to() -> None:
    service, replies = Lengths(), Replies()
    with running(service, replies) as worker:
        worker.receive((1, "a", "length", {"inputs": [""]}))
        worker.receive((2, "a", "nothing", {}))
        replies.wait(2)
        worker.receive((3, "a", "length", {"inputs": ["crash"]}))
        replies.wait(3)
        worker.receive((4, "a", "length", {"inputs": ["fine"]}))
        found = {reply.number: reply for reply in replies.wait(4)}
    assert found[1].payload[:2] == (422, "a text is empty")
    assert found[2].payload[0] == 422
    assert found[3].payload[:2] == (500, "internal error: ZeroDivisionError")
    assert (found[4].state, found[4].payload) == ("done", [4])


def test_jobs_take_turns_with_other_requests() -> None:
    service, replies = Lengths(), Replies()
    service.gate.clear()
    with running(service, replies) as worker:
        worker.receive((1, "a", "length", {"inputs": ["x"]}))
        wait_until(lambda: len(service.batches) == 1)
        worker.receive((2, "b", "count", {"count": 3}))
        worker.receive((3, "c", "count", {"count": 3}))
        service.gate.set()
        found = replies.wait(9)
    order = [reply.number for reply in found if reply.state == "event"]
    assert order == [2, 3, 2, 3, 2, 3]
    assert [reply.payload for reply in found if reply.state == "done" and reply.number > 1] == ["counted", "counted"]


def test_a_job_is_prepared_while_other_requests_are_computed() -> None:
    service, replies, job = Lengths(), Replies(), Prepared()
    with running(service, replies, jobs={"prepared": job}) as worker:
        worker.receive((1, "a", "prepared", {"text": "xxx"}))
        worker.receive((2, "a", "prepared", {"text": "xx"}))
        worker.receive((3, "a", "prepared", {"text": ""}))
        assert job.reached.wait(WAIT)
        worker.receive((4, "b", "length", {"inputs": ["x"]}))
        (first,) = replies.wait(1)
        worker.receive((1, "a", "cancel", {}))  # while it is prepared
        job.gate.set()
        found = replies.wait(5)
    assert first.number == 4
    assert [reply.payload for reply in found if reply.number == 2] == [0, 1, "counted"]
    assert [reply.state for reply in found if reply.number == 3] == ["error"]
    assert not [reply for reply in found if reply.number == 1]


def test_functions_are_answered_while_the_model_computes() -> None:
    service, replies = Lengths(), Replies()
    with running(service, replies) as worker:
        service.gate.clear()
        worker.receive((1, "a", "length", {"inputs": ["x"]}))
        wait_until(lambda: len(service.batches) == 1)
        worker.receive((2, "a", "echo", {"a": 1}))
        assert replies.wait(1) == [Reply(2, "done", {"a": 1})]


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_a_request_of_many_parts_is_answered_once_and_in_order(lanes: int) -> None:
    service, replies = Lengths(), Replies()
    texts = ["x" * number for number in range(1, 200)]
    with running(service, replies, lanes=lanes) as worker:
        for number in range(1, 9):
            worker.receive((number, str(number % 3), "length", {"inputs": texts}))
        found = replies.wait(8)
    assert sorted(reply.number for reply in found) == list(range(1, 9))
    assert all(reply.payload == list(range(1, 200)) for reply in found)
    assert sum(map(len, service.batches)) == 8 * 199
