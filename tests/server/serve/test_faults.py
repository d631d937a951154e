"""Overload, slow and leaving clients, SIGTERM and a killed model process: everyone gets an answer, and nothing is lost.

Statuses are checked here, and times only where a limit is the subject; `benchmarks/serve.py` measures times.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serve import send_slowly
from benchmarks.serve_process import Answer, Client, ServerProcess, descendants, start_server
from tests.server.coroutines import run_coroutine
from tests.server.serve.conftest import EMBED, GPT, KEY, TEXTS

# On one core a request of this size takes tens of milliseconds with the built-in model.
SLOW = {"inputs": ["the film was good and the day was long , " * 5] * 6}


@pytest.fixture(scope="module")
def small() -> Iterator[ServerProcess]:
    """A server of one real model whose queue is soon full."""
    with start_server(["regard-embed"], "--max-concurrent-requests", "16") as started:
        yield started


def content(server: ServerProcess, arguments: object = SLOW) -> bytes:
    return server.request("/embed", json.dumps(arguments).encode(), close=False)


async def ask_at_once(server: ServerProcess, count: int) -> list[Answer]:
    clients = [await Client.connect(server.port) for _ in range(count)]
    answers = await asyncio.gather(*(client.request(content(server)) for client in clients))
    for client in clients:
        client.close()
    return answers


def test_a_full_server_sheds_with_429_and_loses_nothing(small: ServerProcess) -> None:
    answers = run_coroutine(ask_at_once(small, 100))
    statuses = Counter(answer.status for answer in answers)
    assert set(statuses) == {200, 429} and statuses[200] >= 12  # three quarters of the slots: they have one address
    for answer in answers:
        if answer.status == 429:
            assert b"retry-after:" in answer.head.lower() and json.loads(answer.body)["error"]
    assert small.ask("/embed", {"inputs": "a film"})[0] == 200
    assert small.metrics()["te_queue_size"] == 0


def test_slow_bodies_of_one_address_do_not_hold_all_slots(small: ServerProcess) -> None:
    whole = small.request("/embed", json.dumps({"inputs": "a film"}).encode())

    def connect(address: str) -> socket.socket:
        return stack.enter_context(
            socket.create_connection(("127.0.0.1", small.port), timeout=30, source_address=(address, 0))
        )

    with ExitStack() as stack:
        slow = [connect("127.0.0.1") for _ in range(16)]
        for connection in slow:
            connection.sendall(whole[:-1])  # the last byte does not come
        statuses = {}
        for address in ("127.0.0.2", "127.0.0.1"):
            connection = connect(address)
            connection.sendall(whole)
            statuses[address] = int(connection.recv(1 << 16)[9:12])
        refused, _, _ = select.select(slow, [], [], 0)
        assert statuses == {"127.0.0.2": 200, "127.0.0.1": 429} and len(refused) == 4


def test_clients_that_leave_leave_the_queue(small: ServerProcess) -> None:
    async def leave() -> None:
        clients = [await Client.connect(small.port) for _ in range(12)]
        tasks = [asyncio.create_task(client.request(content(small))) for client in clients]
        await asyncio.sleep(0.02)
        for client in clients:
            client.reset()
        await asyncio.gather(*tasks)

    small.ask("/embed", {"inputs": "a film"})  # before the first batch there is no such metric
    tokens = [small.metrics()["te_batch_next_tokens_sum"]]
    small.ask_json("/embed", SLOW)
    tokens.append(small.metrics()["te_batch_next_tokens_sum"])
    run_coroutine(leave())
    assert small.ask("/embed", {"inputs": "a film"})[0] == 200
    wait_for(lambda: small.metrics()["te_queue_size"] == 0)
    tokens.append(small.metrics()["te_batch_next_tokens_sum"])
    one, all_of_them = tokens[1] - tokens[0], tokens[2] - tokens[1]
    assert one > 200 and all_of_them < 11 * one  # of the twelve that left, not all were computed


@pytest.mark.long
def test_slow_clients_get_408(small: ServerProcess) -> None:
    whole = small.request("/embed", json.dumps({"inputs": "a film " * 30}).encode())
    head, _, body = whole.partition(b"\r\n\r\n")

    async def send() -> list[dict[str, Any]]:
        slow_body = send_slowly(small.port, head + b"\r\n\r\n", body, 0.5)
        half_body = send_slowly(small.port, head + b"\r\n\r\n" + body[:10], b"", 0.0)
        slow_head = send_slowly(small.port, head[:20], head[20:], 0.5)
        return await asyncio.gather(slow_body, half_body, slow_head)

    for found in run_coroutine(send()):
        assert found["answer"] == "HTTP/1.1 408" and found["seconds"] > 4.5


def test_a_killed_model_process_is_restarted_and_the_others_go_on(server: ServerProcess) -> None:
    before = restarts(server)
    pid = model_pid(server, EMBED)
    with ThreadPoolExecutor(1) as pool:
        stop = time.monotonic() + 600

        def ask_the_other() -> list[int]:
            """The statuses of another model, from before the crash to the restart."""
            statuses = []
            while not finished and time.monotonic() < stop:
                statuses.append(complete(server))
            return statuses

        finished = False
        other = pool.submit(ask_the_other)
        os.kill(pid, signal.SIGKILL)
        statuses = Counter[int]()
        while statuses[503] == 0 or statuses[200] == 0:
            status, headers, body = server.ask("/embed", {"inputs": TEXTS[0]})
            statuses[status] += 1
            assert status in (200, 503), body
            if status == 503:
                assert json.loads(body)["error"] and "retry-after" in headers
            elif statuses[503] == 0 and time.monotonic() > stop:
                break
        server.wait_until_ready()
        finished = True
        assert set(other.result()) == {200}
    assert server.ask("/embed", {"inputs": TEXTS[0]})[0] == 200
    assert model_pid(server, EMBED) != pid and restarts(server) == before + 1


@pytest.mark.slow
def test_a_stopped_model_process_times_out_and_is_restarted(model_folders: dict[str, Path]) -> None:
    """Its requests get 504, then 503, then answers; another model answers all the time."""
    folders = [str(model_folders[name]) for name in (EMBED, GPT)]
    with start_server(folders, "--request-timeout", "2") as server, ThreadPoolExecutor(1) as pool:
        assert server.ask("/embed", {"inputs": TEXTS[0]})[0] == complete(server) == 200
        os.kill(model_pid(server, EMBED), signal.SIGSTOP)
        finished = False
        other = pool.submit(lambda: {complete(server) for _ in iter(lambda: finished, True)})
        statuses = []
        end = time.monotonic() + 60
        while statuses[-1:] != [200] and time.monotonic() < end:
            statuses.append(server.ask("/embed", {"inputs": TEXTS[0]})[0])
        finished = True
        assert statuses[0] == 504 and statuses[-1] == 200 and set(statuses) <= {504, 503, 200}, statuses
        assert other.result() == {200} and restarts(server) == 1


def complete(server: ServerProcess) -> int:
    return server.ask("/v1/completions", {"model": GPT, "prompt": "the", "max_tokens": 2})[0]


def restarts(server: ServerProcess) -> float:
    return sum(value for name, value in server.metrics().items() if "restart" in name and "created" not in name)


def model_pid(server: ServerProcess, name: str) -> int:
    """The process that serves a model, by its command line."""
    found = []
    for pid in descendants(server.process.pid):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().split(b"\0")[-2] == name.encode():
                found.append(pid)
    assert len(found) == 1, found
    return found[0]


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_key_is_needed(server: ServerProcess) -> None:
    anonymous = ServerProcess(server.process, server.port, "", server.log)
    for path, arguments in (("/embed", {"inputs": "a"}), ("/v1/embeddings", {"input": "a", "model": EMBED})):
        status, headers, body = anonymous.ask(path, arguments)
        assert status == 401 and "www-authenticate" in headers and KEY.encode() not in body
    assert anonymous.ask("/health")[0] == 200
