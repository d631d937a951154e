"""huggingface_hub's InferenceClient against the Text Embeddings Inference endpoints of a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

import regard
from benchmarks.serve_process import ServerProcess
from tests.server.serve.conftest import EMBED, KEY, TEXTS


def client(server: ServerProcess, path: str, *, key: str = KEY) -> InferenceClient:
    return InferenceClient(model=f"{server.address}{path}", token=key)


def library(model_folders: dict[str, Path], *, normalize: bool = True) -> Any:
    return regard.embed(TEXTS, model=str(model_folders[EMBED]), normalize=normalize).vectors


def test_feature_extraction_equals_the_library(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    found = client(server, "/embed").feature_extraction(TEXTS, normalize=True)
    assert np.allclose(found, library(model_folders), atol=1e-5)
    one = client(server, "/embed").feature_extraction(TEXTS[0], truncate=True)
    assert one.shape == (1, found.shape[1]) and np.allclose(one, found[:1], atol=1e-5)
    plain = client(server, "/embed").feature_extraction(TEXTS, normalize=False)
    assert np.allclose(plain, library(model_folders, normalize=False), atol=1e-4)


def test_sentence_similarity(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    vectors = library(model_folders)
    found = client(server, "/similarity").sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:])
    assert found == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=1e-5)


def test_text_classification(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    found = client(server, "/predict").text_classification("the film was good")
    assert {one.label for one in found} == {"bad", "good"}
    assert sum(one.score for one in found) == pytest.approx(1.0) and found[0].score >= found[1].score
    (row,) = regard.predict(str(model_folders["tiny-classifier"]), ["the film was good"]).to_dict()["predictions"]
    assert found[0].label == row["label"] and {one.label: one.score for one in found} == pytest.approx(
        row["probabilities"], abs=1e-5
    )


def test_errors_reach_the_client(server: ServerProcess) -> None:
    with pytest.raises(HfHubHTTPError, match="401"):
        client(server, "/embed", key="wrong").feature_extraction("a film")
    with pytest.raises(HfHubHTTPError, match="422"):
        client(server, "/embed").feature_extraction([])
