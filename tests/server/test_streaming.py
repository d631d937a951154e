"""Streaming over HTTP: events equal the library's, and a stream ends with its client or with the studio."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from regard.interpret.generation import CandidateRecorder
from tests.inference.generation.folders import gpt_folder, t5_folder
from tests.server.conftest import BEARER, create_app
from tests.server.generations import PROMPT, Gate, generated
from tests.server.local import local_registry


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(gpt_folder(tmp_path_factory.mktemp("gpt"), positions=128))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(t5_folder(tmp_path_factory.mktemp("t5")))


@pytest.fixture(scope="module")
def app(gpt: str, t5: str, tiny_bert_folder: Path) -> Starlette:
    registry = local_registry([str(tiny_bert_folder), gpt, t5])
    return create_app(registry)


@pytest.fixture(scope="module")
def studio_address(app: Starlette, run_app: Callable[[Starlette], str]) -> str:
    return run_app(app)


@pytest.fixture(scope="module")
def client(app: Starlette) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1", headers=BEARER)


def events_of(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_api_streams_the_librarys_result(client: TestClient, gpt: str) -> None:
    arguments = {"model": gpt, "prompt": PROMPT, "max_new_tokens": "9", "seed": "3", "top_k": 4, "candidates": True}
    answer = client.post("/v1/generate/events", json=arguments)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    started, *events, result = events_of(answer.text)
    assert started["type"] == "started" and started["run"]["prompt"] == PROMPT and started["run"]["tokens"] == []
    expected = generated(gpt, tokens=9, seed=3, top_k=4)
    tokens = [token for event in events for token in event.get("tokens", ())]
    assert tokens == json.loads(json.dumps([asdict(token) for token in expected.tokens or ()]))
    assert result["type"] == "result" and result["view"] == client.post("/v1/generate/view", json=arguments).json()
    (run,) = result["view"]["runs"]
    assert run["tokens"] == tokens and "".join(token["text"] for token in tokens) == expected.text


def test_a_search_reports_its_steps(client: TestClient, gpt: str) -> None:
    beams = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 5}
    answer = client.post("/v1/generate/events", json={"model": gpt, "prompt": "the film", "candidates": True, **beams})
    steps = [(event["done"], event["total"]) for event in events_of(answer.text) if event["type"] == "progress"]
    assert steps == [(step, 5) for step in range(1, 6)]


def test_a_verb_without_events_streams_one_line(client: TestClient, tiny_bert_folder: Path) -> None:
    arguments = {"model": str(tiny_bert_folder), "text": "the film"}
    (result,) = events_of(client.post("/v1/look/events", json=arguments).text)
    assert result["view"] == client.post("/v1/look/view", json=arguments).json()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"top_p": "7"}, "top_p is '7'"),
        ({"temperature": "warm"}, "temperature is 'warm'; expected a number"),
        ({"seed": "1.5"}, "seed is '1.5'; expected a whole number"),
        ({"min_p": "nan"}, "min_p is 'nan'; expected a finite number"),
        ({"prompt": "x" * 100_000}, "at most 20,000"),
        ({"model": "nothing"}, "the studio has no model 'nothing'"),
    ],
)
def test_invalid_settings_are_rejected(client: TestClient, gpt: str, arguments: dict[str, str], error: str) -> None:
    for address in ("/v1/generate/view", "/v1/generate/events"):
        answer = client.post(address, json={"model": gpt, "prompt": "the film", "candidates": True, **arguments})
        assert answer.status_code == 422 and error in answer.json()["error"], address
    answer = client.post("/v1/nothing/events", json={})
    assert answer.status_code == 404 and "no verb 'nothing'" in answer.json()["error"]["message"]


def test_an_error_during_streaming_is_the_last_line(
    client: TestClient, gpt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, count = CandidateRecorder.sample, 0

    def broken(recorder: CandidateRecorder, *arguments: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise ValueError("broken\npipe")
        sample(recorder, *arguments, **named)

    monkeypatch.setattr(CandidateRecorder, "sample", broken)
    answer = client.post(
        "/v1/generate/events", json={"model": gpt, "prompt": "the film", "temperature": 0, "candidates": True}
    )
    last = json.loads(answer.text.splitlines()[-1])
    assert answer.status_code == 200 and last == {"error": "internal error: ValueError: broken pipe"}


def test_a_branch_can_be_used_as_a_prompt(client: TestClient, gpt: str, t5: str) -> None:
    generation = generated(gpt, "the film", beam=3, tokens=6)
    for result in generation.trace["rows"][0]["results"] if generation.trace else []:
        ids = result["tokens"]
        answer = client.post("/api/branch", json={"model": gpt, "prompt": "the film", "ids": ids}).json()
        if result["text"].endswith("\ufffd"):
            assert "ends inside a character" in answer["error"]
        else:
            assert answer == {"prompt": "the film" + result["text"]}
    assert "should be numbers" in client.post("/api/branch", json={"model": gpt, "ids": [1, -2]}).json()["error"]
    assert "does not continue" in client.post("/api/branch", json={"model": t5, "ids": [1]}).json()["error"]
    assert "no model 'x'" in client.post("/api/branch", json={"model": "x", "ids": [1]}).json()["error"]


def test_a_disconnected_client_stops_generation(studio_address: str, gpt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, 4)
    connection = http.client.HTTPConnection(urlsplit(studio_address).netloc, timeout=30)
    body = json.dumps(
        {"model": gpt, "prompt": "the film", "temperature": 1.5, "max_new_tokens": 100, "candidates": True}
    )
    connection.request("POST", "/v1/generate/events", body, {**BEARER, "Content-Type": "application/json"})
    answer = connection.getresponse()
    assert json.loads(answer.readline())["type"] == "started"
    assert gate.reached.wait(30) and not gate.left.is_set()
    answer.close()
    connection.close()
    assert gate.left.wait(30)
    count = gate.tokens
    gate.opened.set()
    # The model is free for the next request, and nothing more was generated for the first.
    assert generated(gpt, "the film", tokens=3).tokens
    body = json.dumps({"model": gpt, "prompt": "the film", "max_new_tokens": 1, "candidates": True})
    connection.request("POST", "/v1/generate/view", body, {**BEARER, "Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    assert gate.tokens <= count + 3 + 1
    connection.close()


SLOW = """
import sys, time
from regard.cli.app import run
from regard.interpret.generation import CandidateRecorder
sample = CandidateRecorder.sample
def slow(*arguments, **named):
    sample(*arguments, **named)
    time.sleep(0.2)
CandidateRecorder.sample = slow
sys.exit(run(["studio", "--model", sys.argv[1], "--port", "0"]))
"""


@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_ends_the_studio_during_generation(page_built: None, gpt: str) -> None:
    command = [sys.executable, "-c", SLOW, gpt]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        address = re.search(r"(127\.0\.0\.1:\d+)/\?token=(\S+)", process.stdout.readline())
        assert address is not None
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {address[2]}"}
        body = json.dumps(
            {"model": gpt, "prompt": "the film", "temperature": 1.5, "max_new_tokens": 120, "candidates": True}
        )
        while True:
            connection = http.client.HTTPConnection(address[1], timeout=200)
            connection.request("POST", "/v1/generate/events", body, headers)
            answer = connection.getresponse()
            if answer.status == 200:
                break
            assert b"still being loaded" in answer.read()
        assert json.loads(answer.readline())["type"] == "started"
        assert "tokens" in json.loads(answer.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=200) == 0
        assert re.fullmatch(r".*ended.*\n", process.stdout.read())
        assert process.stderr.read() == ""
        connection.close()
