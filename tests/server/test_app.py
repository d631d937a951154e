"""A server's responses to valid and invalid HTTP requests."""

from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from starlette.applications import Starlette

import regard
from regard.server.app import PAGE_LIMITS
from regard.server.http.endpoint import Limits
from tests.server.conftest import BEARER, create_app
from tests.server.local import local_registry, run_verb_stub, stub_registry

BERT = ["text-encoder", "masked-lm", "next-sentence", "fine-tuning", "pooling", "segments"]
MAX_CHARACTERS = 20_000
MAX_BODY_BYTES = {"studio": PAGE_LIMITS.max_body_bytes, "serve": Limits().max_body_bytes}


def send_request(
    address: str, path: str, body: object = None, *, raw: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    sent = raw if raw is not None else None if body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"} if sent is not None else {}
    connection.request("GET" if sent is None else "POST", path, sent, {**BEARER, **kind, **(headers or {})})
    response = connection.getresponse()
    text = response.read().decode()
    headers_received = dict(response.getheaders())
    return (
        response.status,
        json.loads(text) if headers_received.get("content-type") == "application/json" else text,
        headers_received,
    )


def error_of(answer: Any) -> str:
    """The message of an error, of which clients of OpenAI's protocol expect another form."""
    error = answer["error"]
    return str(error if isinstance(error, str) else error["message"])


@pytest.fixture(scope="session")
def tiny(tiny_bert_folder: Path, run_app: Callable[[Starlette], str]) -> str:
    registry = local_registry([str(tiny_bert_folder)])
    return run_app(create_app(registry))


@pytest.fixture(scope="session")
def served(tiny_bert_folder: Path, run_app: Callable[[Starlette], str], door: str) -> str:
    """The address of a server with one model, of either door."""
    name = str(tiny_bert_folder) if door == "studio" else f"tiny={tiny_bert_folder}"
    return run_app(create_app(local_registry([name], door=door), door=door))


@pytest.fixture(scope="session")
def name(door: str, tiny_bert_folder: Path) -> str:
    """What `served` calls its model."""
    return str(tiny_bert_folder) if door == "studio" else "tiny"


@pytest.fixture(scope="session")
def model(tiny_bert_folder: Path) -> str:
    return str(tiny_bert_folder)


def test_the_page_lists_the_models_and_contacts_no_other_host(tiny: str, model: str, page_built: None) -> None:
    status, text, headers = send_request(tiny, "/")
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert model in text and "connect-src 'self'" in text
    assert not any(name.lower().startswith("access-control") for name in headers)
    assert headers["x-frame-options"] == "DENY" and "frame-ancestors 'none'" in headers["content-security-policy"]


def test_the_states_of_the_models(tiny: str, model: str) -> None:
    (found,) = send_request(tiny, "/api/models")[1]["models"]
    assert found.pop("num_parameters") > 1000
    assert found == {
        "name": model,
        "state": "ready",
        "error": "",
        "capabilities": BERT,
        "description": "Fills in blanks and gives word vectors.",
        "task": None,
        "num_attention_heads": 4,
    }


def test_attention_is_that_of_the_model(tiny: str, model: str) -> None:
    status, payload, _ = send_request(
        tiny, "/v1/look/view", {"model": model, "text": "a good day", "text_b": "the film"}
    )
    assert status == 200 and payload["view"] == "attention"
    (found,) = payload["maps"]
    network, tokenizer = regard.load(model)
    assert tokenizer is not None
    encoding = tokenizer.encode("a good day", "the film")
    with torch.no_grad(), regard.record(network) as tape:
        network(torch.tensor([encoding.ids]), segments=torch.tensor([encoding.segments]))
    weights = torch.stack([layer[0] for layer in tape.attention()]).numpy()
    decoded = np.frombuffer(base64.b64decode(found["weights"]), np.uint8).reshape(weights.shape)
    assert np.abs(decoded / 255 - weights).max() <= 0.5 / 255 + 1e-6
    assert found["row_segments"] == list(encoding.segments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": ""}, "text is empty"),
        ({"text": " \n\t "}, "text is empty"),
        ({}, "text is empty"),
        ({"text": 3}, "text is 3; expected a text"),
        ({"text": "a" * 100_000}, f"has 100,000 characters; {{server}} takes at most {MAX_CHARACTERS:,}"),
        ({"text": "a", "text_b": "b" * (MAX_CHARACTERS + 1)}, f"at most {MAX_CHARACTERS:,}"),
        ({"text": "a", "model": "elsewhere"}, "{server} has no model 'elsewhere'"),
    ],
)
def test_unusable_requests_get_an_error_message(
    served: str, door: str, name: str, arguments: dict[str, object], message: str
) -> None:
    status, answer, _ = send_request(served, "/v1/look/view", {"model": name, **arguments})
    assert status == (404 if door == "serve" and "model" in arguments else 422)
    assert message.format(server="the studio" if door == "studio" else "the server") in error_of(answer)


@pytest.mark.parametrize("text", ["😀 🏳️‍🌈", "שלום עולם", "<script>alert(1)</script>", "\ud800 half", "a\0b", "ﷺ" * 50])
def test_any_text_gets_a_response(served: str, name: str, text: str) -> None:
    raw = json.dumps({"model": name, "text": text}).encode()
    status, answer, _ = send_request(served, "/v1/look/view", raw=raw)
    assert status == 200 and answer["texts"] == [text]


@pytest.mark.parametrize(
    ("raw", "expected", "message"),
    [
        (b"{", 422, "the body is not JSON"),
        (b"\xff\xfe", 422, "the body is not JSON"),
        (b"[" * 100_000, 422, "the body is not JSON"),
        (b"[]", 422, "must be a JSON object, got list"),
        (b"", 413, "at most {limit} bytes"),  # one that is too long
    ],
)
def test_a_malformed_body_is_rejected(served: str, door: str, raw: bytes, expected: int, message: str) -> None:
    limit = MAX_BODY_BYTES[door]
    raw = raw or b'"' + b"a" * (limit + 1) + b'"'
    status, answer, _ = send_request(served, "/v1/look/view", raw=raw)
    assert status == expected and message.format(limit=f"{limit:,}") in answer["error"]
    assert send_request(served, "/v1/models")[0] == 200


def test_other_host_names_of_this_machine_are_rejected(served: str) -> None:
    for path in ("/", "/v1/models", "/metrics", "/health"):
        assert send_request(served, path, headers={"Host": "evil.example"})[0] == 400
    assert send_request(served, "/v1/models", headers={"Host": "localhost:8080"})[0] == 200


def test_a_cross_origin_form_is_rejected(served: str, name: str) -> None:
    raw = json.dumps({"model": name, "text": "a"}).encode()
    status, answer, _ = send_request(served, "/v1/look/view", raw=raw, headers={"Content-Type": "text/plain"})
    assert status == 415 and "Content-Type: application/json" in answer["error"]
    assert send_request(served, "/v1/look/view", headers={"Origin": "http://evil.example"})[0] == 405
    headers = send_request(served, "/v1/models", headers={"Origin": "http://evil.example"})[2]
    assert not any(name.lower().startswith("access-control") for name in headers)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("generate", {"prompt": "a", "max_new_tokens": 401}),
        ("generate", {"prompt": "a", "num_beams": 17}),
        ("translate", {"source": "a", "num_beams": 11}),
    ],
)
def test_the_work_of_a_request_is_limited(served: str, name: str, verb: str, arguments: dict[str, object]) -> None:
    status, answer, _ = send_request(served, f"/v1/{verb}", {"model": name, **arguments})
    assert status == 422 and re.search("the (studio|server) takes at most", answer["error"])


def test_an_unknown_verb_gets_a_suggestion(served: str) -> None:
    status, answer, _ = send_request(served, "/v1/lok/view", {})
    assert status == 404 and "did you mean 'look'" in answer["error"]["message"]  # the form of OpenAI


def test_a_view_is_exported_as_one_file(tiny: str, model: str, page_built: None) -> None:
    arguments = {"model": model, "text": "</script><b>day"}
    status, text, headers = send_request(tiny, "/v1/look/page", arguments)
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert "connect-src 'none'" in text and "</script><b>" not in text
    start = text.index('id="regard">') + len('id="regard">')
    payload = json.loads(text[start : text.index("</script>", start)])
    assert payload["texts"] == ["</script><b>day"]


def test_an_internal_error_gets_a_response_and_the_server_continues(
    run_app: Callable[[Starlette], str], door: str
) -> None:
    def broken(studio: object, arguments: object) -> dict[str, object]:
        raise ZeroDivisionError("of course")

    address = run_app(create_app(stub_registry(run_verb_stub(fill=broken), door=door), door=door))
    status, answer, _ = send_request(address, "/v1/fill", {})
    # Who runs a studio reads its errors; a client of `regard serve` is not told what a text of it may be part of.
    assert (status, answer) == (
        500,
        {"error": "internal error: ZeroDivisionError" + (": of course" if door == "studio" else "")},
    )
    assert send_request(address, "/v1/models")[0] == 200


def test_two_concurrent_tabs_get_their_own_results(served: str, name: str) -> None:
    texts = [f"{'the ' * count}day" for count in range(1, 9)]
    answers: dict[str, Any] = {}

    def tab(text: str) -> None:
        answers[text] = send_request(served, "/v1/look/view", {"model": name, "text": text})

    threads = [threading.Thread(target=tab, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(answers[text][0] == 200 and answers[text][1]["texts"] == [text] for text in texts)


def test_a_deleted_model_folder_is_an_error_and_not_a_crash(
    tiny_bert_folder: Path, tmp_path: Path, run_app: Callable[[Starlette], str]
) -> None:
    stays, gone = tmp_path / "stays", tmp_path / "gone"
    shutil.copytree(tiny_bert_folder, stays)
    registry = local_registry([str(stays), str(gone)])
    address = run_app(create_app(registry))
    shutil.rmtree(stays)
    assert [one["state"] for one in send_request(address, "/api/models")[1]["models"]] == ["ready", "failed"]
    status, answer, _ = send_request(address, "/v1/look/view", {"model": str(gone), "text": "a"})
    assert status == 422 and "could not be loaded" in answer["error"] and "no such folder" in answer["error"]
    # A model loaded before its folder was deleted stays usable.
    assert send_request(address, "/v1/look/view", {"model": str(stays), "text": "a"})[0] == 200


def test_a_verb_without_a_model_chooses_its_own_or_names_what_is_missing(tiny: str) -> None:
    status, answer, _ = send_request(tiny, "/v1/predict/view", {"source": "a"})
    assert status == 422 and "model" in answer["error"]
    status, answer, _ = send_request(tiny, "/v1/search/view", {"source": "a film\na day", "query": ["film"]})
    assert status == 200 and "regard-embed" in answer["cli"] + str(answer)


def test_an_unknown_action_gets_a_suggestion(tiny: str) -> None:
    status, answer, _ = send_request(tiny, "/api/trainin", {})
    assert status == 404 and "did you mean 'train" in answer["error"]
