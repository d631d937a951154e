"""Requests to the studio with all threads each, against one thread for a small model: see `benchmarks/studio_load.py`.

The two studios alternate, and the best round of each counts: other programs on the machine disturb single rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.serve_process import ServerProcess, start_server
from benchmarks.studio_load import send, verb_request, wait_for_models

SOURCE = "Ich muss auf den Markt gehen."
TEXT = "The animal did not cross the street because it was too tired."
# One request per model: a model serves one request at a time.
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("figure", {"model": "regard-de-en", "text": SOURCE}),
    ("figure", {"model": "regard-fr-en", "text": "Je suis étudiant."}),
    ("look", {"model": "regard-bert", "text": TEXT}),
    ("generate", {"model": "regard-gpt", "prompt": TEXT, "max_new_tokens": 20, "candidates": True}),
]
BUSY = "while True: pass"


async def compare_threads(*, rounds: int) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    models = [str(arguments["model"]) for _, arguments in REQUESTS]
    with (
        start_server(models, "--threads", str(cores), door="studio", env=env) as many,
        start_server(models, "--threads", "0", door="studio", env=env) as automatic,
    ):
        studios = {"all threads": many, "default": automatic}
        for studio in studios.values():
            await wait_for_models(studio)
            await at_once(studio, REQUESTS)  # warm up
        results: dict[str, Any] = {"cores": cores, "rounds": rounds, "load": os.getloadavg()[0]}
        for busy in (0, 2):
            with busy_processes(busy):
                for title, requests in (("Figure 1", REQUESTS[:1]), ("four requests at once", REQUESTS)):
                    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in studios}
                    for _ in range(rounds):
                        for name, studio in studios.items():
                            measured[name].append(await at_once(studio, requests))
                    results[f"{title}, {busy} busy processes"] = summarize(measured)
                    print(title, busy, results[f"{title}, {busy} busy processes"], file=sys.stderr, flush=True)
    return results


def summarize(measured: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """The best and the median wall-clock time and the median CPU time, in seconds, and the ratios."""
    found = {
        name: {
            "best": min(wall for wall, _ in values),
            "median": statistics.median(wall for wall, _ in values),
            "cpu": statistics.median(cpu for _, cpu in values),
        }
        for name, values in measured.items()
    }
    ratios = {key: round(found["all threads"][key] / value, 2) for key, value in found["default"].items()}
    rounded = {name: {key: round(value, 3) for key, value in one.items()} for name, one in found.items()}
    return {**rounded, "all threads / default": ratios}


async def at_once(studio: ServerProcess, requests: list[tuple[str, dict[str, Any]]]) -> tuple[float, float]:
    """The time until all requests, sent at once from as many tabs, are answered, and the studio's CPU time for them."""
    begin, used = time.perf_counter(), studio.cpu_seconds
    responses = await asyncio.gather(
        *(send(studio, verb_request(studio, *request, tab=str(tab))) for tab, request in enumerate(requests))
    )
    for response, request in zip(responses, requests, strict=True):
        assert response.status == 200, (request, response.status, response.body[:300])
    return time.perf_counter() - begin, studio.cpu_seconds - used


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
