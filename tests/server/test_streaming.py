"""Texts in pieces over HTTP: what comes is the library's, and it ends with whoever reads it, or with the studio."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from regard.interpret.generation import PROMPTS, CandidateRecorder
from regard.server.model_registry import ModelRegistry
from tests.inference.generation.folders import gpt_folder, t5_folder
from tests.server.conftest import BEARER, create_app
from tests.server.speeches import PROMPT, Gate, spoken


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(gpt_folder(tmp_path_factory.mktemp("gpt"), positions=128))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(t5_folder(tmp_path_factory.mktemp("t5")))


@pytest.fixture(scope="module")
def app(gpt: str, t5: str, tiny_bert_folder: Path) -> Starlette:
    registry = ModelRegistry([str(tiny_bert_folder), gpt, t5])
    registry.start().join()
    return create_app(registry)


@pytest.fixture(scope="module")
def writers(app: Starlette, run_app: Callable[[Starlette], str]) -> str:
    return run_app(app)


@pytest.fixture(scope="module")
def client(app: Starlette) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1", headers=BEARER)


def test_the_api_gives_what_the_library_gives(client: TestClient, gpt: str) -> None:
    arguments = {
        "model": gpt,
        "prompt": PROMPT,
        "tokens": "9",
        "seed": "3",
        "second": "on",
        "b_top_k": "4",
        "b_seed": "1",
    }
    plan = client.post("/api/generation", json=arguments).json()
    assert [run["tokens"] for run in plan["runs"]] == [[], []] and plan["prompt"] == PROMPT
    assert plan["studio"]["prompts"] == PROMPTS
    answer = client.post("/api/generation/stream", json=arguments)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    begun, *news = [json.loads(line) for line in answer.text.splitlines()]
    assert begun == {"begun": 2}
    expected = [spoken(gpt, tokens=9, seed=3), spoken(gpt, tokens=9, seed=1, top_k=4)]
    for key, speech in zip("01", expected, strict=True):
        told = [token for one in news for token in one.get("tokens", {}).get(key, [])]
        assert told == json.loads(json.dumps([token.view_data() for token in speech.tokens]))
        assert {"over": {key: {"reason": speech.reason, "trace": None}}} in news
    whole = client.post("/api/generation", json={**arguments, "place": "#generation"}).json()
    assert whole["cli"] == plan["cli"] and "studio" not in whole
    assert ["".join(token["text"] for token in run["tokens"]) for run in whole["runs"]] == [
        one.text for one in expected
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"top_p": "7"}, "'top_p' is '7'"),
        ({"temperature": "warm"}, "'temperature' is 'warm'; expected a valid number"),
        ({"tokens": "401"}, "'tokens' should be a whole number from 0 to 400"),
        ({"beam": "17"}, "'beam' should be a whole number from 0 to 16"),
        ({"seed": "1.5"}, "'seed' should be a whole number from 0 to 1,000,000,000, got '1.5'"),
        ({"second": "on", "b_min_p": "nan"}, "'min_p' is 'nan'; expected a finite number"),
        ({"prompt": "x" * 100_000}, "at most 20,000"),
        ({"model": "nothing"}, "the studio has no model 'nothing'"),
        ({"second": "on", "b_model": "nothing"}, "the studio has no model 'nothing'"),
    ],
)
def test_bad_settings_are_refused(client: TestClient, gpt: str, arguments: dict[str, str], error: str) -> None:
    for address in ("/api/generation", "/api/generation/stream"):
        answer = client.post(address, json={"model": gpt, "prompt": "the film", **arguments})
        assert answer.status_code == 400 and error in answer.json()["error"], address
    answer = client.post("/api/nothing/stream", json={})
    assert answer.status_code == 400 and "no stream 'nothing'" in answer.json()["error"]


def test_a_failure_in_mid_stream_is_the_last_line(
    client: TestClient, gpt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, count = CandidateRecorder.sample, 0

    def broken(heard: CandidateRecorder, *arguments: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise ValueError("broken\npipe")
        sample(heard, *arguments, **named)

    monkeypatch.setattr(CandidateRecorder, "sample", broken)
    answer = client.post("/api/generation/stream", json={"model": gpt, "prompt": "the film", "temperature": "0"})
    last = json.loads(answer.text.splitlines()[-1])
    assert answer.status_code == 200 and last == {"error": "internal error: ValueError: broken pipe"}


def test_a_branch_is_a_prompt(client: TestClient, gpt: str, t5: str) -> None:
    speech = spoken(gpt, "the film", beam=3, tokens=6)
    for result in speech.trace["rows"][0]["results"] if speech.trace else []:
        ids = " ".join(map(str, result["tokens"]))
        answer = client.post("/api/branch", json={"model": gpt, "prompt": "the film", "ids": ids}).json()
        if result["text"].endswith("\ufffd"):
            assert "ends inside a character" in answer["error"]
        else:
            assert answer == {"prompt": "the film" + result["text"]}
    assert "should be numbers" in client.post("/api/branch", json={"model": gpt, "ids": "1 -2"}).json()["error"]
    assert "answers its prompt" in client.post("/api/branch", json={"model": t5, "ids": "1"}).json()["error"]
    assert "no model 'x'" in client.post("/api/branch", json={"model": "x", "ids": "1"}).json()["error"]


def test_who_leaves_stops_the_writing(writers: str, gpt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, 4)
    connection = http.client.HTTPConnection(urlsplit(writers).netloc, timeout=30)
    body = json.dumps({"model": gpt, "prompt": "the film", "temperature": "1.5", "tokens": "100"})
    connection.request("POST", "/api/generation/stream", body, {**BEARER, "Content-Type": "application/json"})
    answer = connection.getresponse()
    assert json.loads(answer.readline()) == {"begun": 1}
    assert gate.reached.wait(30) and not gate.left.is_set()
    answer.close()
    connection.close()
    assert gate.left.wait(30)
    count = gate.tokens
    gate.opened.set()
    # The model is free for the next question, and nothing more was written for the first.
    assert spoken(gpt, "the film", tokens=3).tokens
    connection.request("POST", "/api/generation", body, {**BEARER, "Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    assert gate.tokens <= count + 3
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
def test_ctrl_c_ends_the_studio_while_it_writes(page_built: None, gpt: str) -> None:
    command = [sys.executable, "-c", SLOW, gpt]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        address = re.search(r"(127\.0\.0\.1:\d+)/\?token=(\S+)", process.stdout.readline())
        assert address is not None
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {address[2]}"}
        body = json.dumps({"model": gpt, "prompt": "the film", "temperature": "1.5", "tokens": "120"})
        while True:
            connection = http.client.HTTPConnection(address[1], timeout=60)
            connection.request("POST", "/api/generation/stream", body, headers)
            answer = connection.getresponse()
            if answer.status == 200:
                break
            assert b"still being loaded" in answer.read()
        assert json.loads(answer.readline()) == {"begun": 1}
        assert "tokens" in json.loads(answer.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == "The studio has ended.\n"
        assert process.stderr.read() == ""
        connection.close()
