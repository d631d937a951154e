"""Communication between processes: one process alone, and two forked processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
import torch

from regard.training.distributed.world import World, join_world

PROGRAM = """
import json, os, sys, time
os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}
import torch
from regard.training.distributed.world import join_world

child = os.fork()
rank = 1 if child == 0 else 0
os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}

def fail():
    raise ValueError("no disk")

with join_world() as world:
    done = []
    found = {
        "world": [world.rank, world.size, world.local_rank, world.is_main],
        "gpu": str(world.device(torch.device("cuda"))),
        "agreed": world.broadcast(rank + 0.1, 7.0),
        "mean": world.mean(rank + 1.0, 2.0 * rank),
        "highest": world.max(float(5 + rank)),
    }
    with world.main_only() as is_main:
        if is_main:
            time.sleep(0.5)
            done.append(1)
            found["main ends"] = time.monotonic()  # the clock is that of the machine
    found |= {"done": done, "goes on": time.monotonic()}
    if rank == 0:
        time.sleep(0.5)
    found["at the barrier"] = time.monotonic()
    world.barrier()
    found["behind the barrier"] = time.monotonic()
    try:
        with world.main_only() as is_main:
            if is_main:
                fail()
    except BaseException as error:
        found["error"] = repr(error)
    with join_world() as again:  # of a process group that exists
        found["again"] = [again.rank, again.size, again.max(float(rank))]
    world.barrier()
os.write(1, (json.dumps(found) + "\\n").encode())
if child:
    os.waitpid(child, 0)
else:
    os._exit(0)
"""


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.fixture(scope="module")
def process_results() -> list[dict[str, Any]]:
    """The results of two processes, ordered by rank."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, free_port()]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return sorted(found, key=lambda each: each["world"][0])


def test_each_process_has_its_rank(process_results: list[dict[str, Any]]) -> None:
    assert [each["world"] for each in process_results] == [[0, 2, 0, True], [1, 2, 1, False]]
    assert [each["gpu"] for each in process_results] == ["cuda:0", "cuda:1"]


def test_an_existing_process_group_is_used_and_stays(process_results: list[dict[str, Any]]) -> None:
    assert [each["again"] for each in process_results] == [[0, 2, 1.0], [1, 2, 1.0]]


def test_broadcast_sends_the_main_process_values(process_results: list[dict[str, Any]]) -> None:
    assert [each["agreed"] for each in process_results] == [[0.1, 7.0]] * 2


def test_mean_and_max_are_over_all_processes(process_results: list[dict[str, Any]]) -> None:
    assert [each["mean"] for each in process_results] == [[1.5, 1.0]] * 2
    assert [each["highest"] for each in process_results] == [6.0] * 2


def test_the_others_wait_for_the_main_process(process_results: list[dict[str, Any]]) -> None:
    assert [each["done"] for each in process_results] == [[1], []]
    assert all(each["goes on"] > process_results[0]["main ends"] for each in process_results)
    last = max(each["at the barrier"] for each in process_results)
    assert all(each["behind the barrier"] > last for each in process_results)


def test_the_others_exit_if_the_main_process_fails(process_results: list[dict[str, Any]]) -> None:
    assert [each["error"] for each in process_results] == ["ValueError('no disk')", "SystemExit(1)"]


def test_a_single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    done: list[int] = []
    with join_world() as world:
        assert world == World(0, 1, 0) and world.is_main
        assert world.broadcast(1.0, 2.0) == world.mean(1.0, 2.0) == (1.0, 2.0)
        assert world.max(3.0) == 3.0
        world.barrier()
        with world.main_only() as is_main:
            done.append(int(is_main))
        with pytest.raises(ZeroDivisionError), world.main_only():
            done.append(1 // 0)
    assert done == [1]
    assert not torch.distributed.is_initialized()


def test_torchrun_may_start_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with join_world() as world:
        assert world == World()


def test_an_explicit_device_is_used() -> None:
    for world in (World(), World(1, 2, 1)):
        assert world.device(torch.device("cpu")) == torch.device("cpu")
        assert world.device(torch.device("cuda", 0)) == torch.device("cuda", 0)
    assert World().device(torch.device("cuda")) == torch.device("cuda")
