"""TEI's /embed_sparse: the vectors of sentence-transformers' SparseEncoder, alone and with other clients' texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import regard
from benchmarks.serve_process import ServerProcess, start_server
from tests.inference.embedding.sparse_folders import TEXTS, TOKENS, sparse_encoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prompts = {"document": "search : "}
    return sparse_encoder(tmp_path_factory.mktemp("splade") / "model", static=True, prompts=prompts)


@pytest.fixture(scope="module")
def server(folder: Path, tiny_bert_folder: Path) -> Iterator[ServerProcess]:
    with start_server([str(tiny_bert_folder), f"splade={folder}"]) as process:
        yield process


def dense(rows: list[list[dict[str, float]]]) -> np.ndarray:
    found = np.zeros((len(rows), len(TOKENS)))
    for number, row in enumerate(rows):
        for one in row:
            assert one["value"] > 0
            found[number, int(one["index"])] = one["value"]
    return found


@pytest.mark.parametrize("task", ["document", "query"])
def test_vectors_are_those_of_the_library(server: ServerProcess, folder: Path, task: str) -> None:
    texts = [text for text in TEXTS if text] * 7
    expected = regard.embed(texts, model=folder, kind="sparse", task=task).sparse.toarray()
    request = {"truncate": True} | ({"prompt_name": "query"} if task == "query" else {})
    found = dense(server.ask_json("/embed_sparse", {"inputs": texts, **request}))
    assert np.allclose(found, expected, atol=1e-5)
    with ThreadPoolExecutor(8) as pool:
        alone = list(pool.map(lambda text: server.ask_json("/embed_sparse", {"inputs": text, **request})[0], texts))
    assert np.allclose(dense(alone), expected, atol=1e-5)


def test_requests_that_cannot_be_answered(server: ServerProcess) -> None:
    long = {"inputs": "the cat " * 40}
    assert server.ask("/embed_sparse", long)[0] == 413
    assert len(server.ask_json("/embed_sparse", {**long, "truncate": True})) == 1
    status, _, body = server.ask("/embed_sparse", {"inputs": "the cat", "prompt_name": "queries"})
    assert status == 422 and "query" in json.loads(body)["error"]
    status, _, body = server.ask("/embed_sparse", {"inputs": "the cat", "model": "tiny-bert0"})
    assert status == 422 and "SparseEncoder" in json.loads(body)["error"] and "splade" in json.loads(body)["error"]
    status, _, body = server.ask("/embed", {"inputs": "the cat", "model": "splade"})
    assert status == 422 and "cannot embed" in json.loads(body)["error"]
    assert len(server.ask_json("/embed", {"inputs": "the cat"})[0]) == 32
