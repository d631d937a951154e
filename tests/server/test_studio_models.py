"""The studio answers programs too: the endpoints of `regard serve` on its own models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from starlette.applications import Starlette

import regard
from regard.server.http.access import ApiKeys
from regard.server.models.registry import ModelRegistry
from regard.server.studio.routes import Studio
from tests.server.conftest import create_app
from tests.server.local import local_registry
from tests.server.test_app import send_request

KEY = "the key of a class"


@pytest.fixture(scope="module")
def registry(tiny_bert_folder: Path) -> ModelRegistry:
    found = local_registry([str(tiny_bert_folder)])
    return found


@pytest.fixture(scope="module")
def address(registry: ModelRegistry, run_app: Callable[[Starlette], str]) -> str:
    return run_app(create_app(registry))


def test_vectors_are_those_of_the_library(address: str, tiny_bert_folder: Path) -> None:
    status, found, headers = send_request(address, "/embed", {"inputs": ["a good day"], "normalize": False})
    assert status == 200 and headers["x-request-id"]
    expected = regard.Embedder(str(tiny_bert_folder)).transform(["a good day"])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    model = send_request(address, "/v1/models")[1]["data"][0]["id"]
    status, found, _ = send_request(address, "/v1/embeddings", {"model": model, "input": "a good day"})
    assert status == 200 and found["usage"]["total_tokens"] > 3
    status, found, _ = send_request(address, "/v1/completions", {"model": model, "prompt": "a"})
    assert status == 400 and "cannot generate text" in found["error"]["message"]
    status, found, _ = send_request(address, "/health")
    assert (status, found["status"]) == (200, "ok")
    assert "/embed" in send_request(address, "/openapi.json")[1]["paths"]
    assert "te_embed_success" in send_request(address, "/metrics")[1]


def test_keys_replace_the_token(registry: ModelRegistry, run_app: Callable[[Starlette], str]) -> None:
    from regard.server.app import create_app

    app = create_app(registry, studio=Studio(registry), token="unused", keys=ApiKeys([KEY]), hosts=["*"])
    address = run_app(app)
    for path in ("/v1/models", "/api/models"):
        assert send_request(address, path)[0] == 401
        assert send_request(address, path, headers={"Authorization": "Bearer unused"})[0] == 401
        assert send_request(address, path, headers={"Authorization": f"Bearer {KEY}", "Host": "a.class"})[0] == 200
    status, text, _ = send_request(address, "/")
    assert status == 401 and '<form action="/"' in text
    status, _, headers = send_request(address, f"/?token={KEY.replace(' ', '+')}")
    assert status == 303 and "HttpOnly" in headers["set-cookie"]
