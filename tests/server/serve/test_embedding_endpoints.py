"""The endpoints of Text Embeddings Inference (TEI) in plain JSON: its fields, defaults, errors and metric names."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from benchmarks.serve_process import ServerProcess
from tests.server.serve.conftest import CLASSIFIER, EMBED, PROMPTS, RERANKER, TEXTS

METRICS = (
    *("te_request_count", "te_request_success", "te_request_failure", "te_queue_size"),
    *("te_embed_count", "te_embed_success", "te_predict_count", "te_rerank_count", "te_tokenize_count"),
)
HISTOGRAMS = (
    *("te_request_duration", "te_request_tokenization_duration", "te_request_queue_duration"),
    *("te_request_inference_duration", "te_request_input_length", "te_batch_next_size", "te_batch_next_tokens"),
)


def test_embed(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    expected = regard.embed(TEXTS, model=str(model_folders[EMBED]), normalize=True).vectors
    assert np.allclose(server.ask_json("/embed", {"inputs": TEXTS}), expected, atol=1e-5)
    assert np.allclose(server.ask_json("/embed", {"inputs": TEXTS[1]}), expected[1:2], atol=1e-5)
    plain = server.ask_json("/embed", {"inputs": TEXTS, "normalize": False})
    assert not np.allclose(np.linalg.norm(plain, axis=1), 1.0, atol=1e-3)


def test_a_prompt_of_the_model_is_put_before_the_texts(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    folder = str(model_folders[EMBED])
    for name, prompt in PROMPTS.items():
        expected = regard.embed(TEXTS, model=folder, normalize=True, prompt_name=name).vectors
        assert np.allclose(
            expected, regard.embed([prompt + text for text in TEXTS], model=folder, normalize=True).vectors
        )
        assert np.allclose(server.ask_json("/embed", {"inputs": TEXTS, "prompt_name": name}), expected, atol=1e-5)
        inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
        request = {"input": TEXTS, "model": EMBED, "prompt_name": name, "user": "me"}
        found = [one["embedding"] for one in server.ask_json("/v1/embeddings", request)["data"]]
        assert np.allclose(found, expected, atol=1e-5)
        cosines = server.ask_json("/similarity", {"inputs": inputs, "parameters": {"prompt_name": name}})
        assert np.allclose(cosines, expected[1:] @ expected[0], atol=1e-5)
        tokens = server.ask_json("/tokenize", {"inputs": TEXTS, "prompt_name": name})
        assert tokens == server.ask_json("/tokenize", {"inputs": [prompt + text for text in TEXTS]})
    plain = server.ask_json("/embed", {"inputs": TEXTS})
    assert not np.allclose(plain, server.ask_json("/embed", {"inputs": TEXTS, "prompt_name": "query"}), atol=1e-3)
    requests = {
        "/embed": {"inputs": TEXTS, "prompt_name": "qeury"},
        "/embed_all": {"inputs": TEXTS, "prompt_name": "qeury"},
        "/tokenize": {"inputs": TEXTS, "prompt_name": "qeury"},
        "/similarity": {"inputs": inputs, "parameters": {"prompt_name": "qeury"}},
    }
    for path, request in requests.items():
        status, _, body = server.ask(path, request)
        assert status == 422 and b"did you mean 'query'" in body and b"prompt_name" in body


def test_embeddings_refuse_fields_that_they_do_not_know(server: ServerProcess) -> None:
    status, _, body = server.ask("/v1/embeddings", {"input": TEXTS, "model": EMBED, "input_type": "query"})
    assert status == 400 and json.loads(body)["error"]["param"] == "input_type"


@pytest.mark.parametrize("prompt_name", [None, "query"])
def test_embed_all_gives_the_vectors_of_tokens(
    server: ServerProcess, model_folders: dict[str, Path], prompt_name: str | None
) -> None:
    """Those of transformers, before pooling, with special tokens and prompt: alone and with other clients' texts."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(model_folders[EMBED]).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folders[EMBED])
    texts = [*TEXTS, "film", "", "我喜欢 the film"]
    with torch.inference_mode():
        expected = [
            model(**tokenizer(PROMPTS.get(prompt_name or "", "") + text, return_tensors="pt")).last_hidden_state[0]
            for text in texts
        ]
    found = server.ask_json("/embed_all", {"inputs": texts, "prompt_name": prompt_name})
    with ThreadPoolExecutor(len(texts)) as pool:
        request = {"prompt_name": prompt_name}
        alone = list(pool.map(lambda text: server.ask_json("/embed_all", {"inputs": text, **request})[0], texts))
    for vectors, single, reference in zip(found, alone, expected, strict=True):
        assert np.allclose(vectors, reference.numpy(), atol=1e-5) and np.allclose(single, reference.numpy(), atol=1e-5)


def test_embed_all_has_limits(server: ServerProcess) -> None:
    status, _, body = server.ask("/embed_all", {"inputs": "the film " * 400})
    assert status == 413 and "tokens" in json.loads(body)["error"]
    cut = server.ask_json("/embed_all", {"inputs": "the film " * 400, "truncate": True})
    assert len(cut) == 1 and len(cut[0]) == 128
    status, _, body = server.ask("/embed_all", {"inputs": ["the film " * 70] * 2048, "truncate": True})
    assert status == 422 and "send several requests" in json.loads(body)["error"]
    assert server.ask("/embed_all", {"inputs": [[5, 6]]})[0] == 422  # without --accept-token-ids


def test_texts_of_many_clients_are_batched_and_every_client_gets_its_own(
    server: ServerProcess, model_folders: dict[str, Path]
) -> None:
    texts = [f"{'the water is hot and ' * (number % 9)} number {number}" for number in range(96)]
    expected = regard.embed(texts, model=str(model_folders[EMBED]), normalize=True).vectors
    before = server.metrics()
    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda text: server.ask_json("/embed", {"inputs": text})[0], texts))
    cosines = (np.array(found, np.float64) * expected).sum(1) / np.linalg.norm(found, axis=1)
    assert np.allclose(cosines / np.linalg.norm(expected, axis=1), 1.0, atol=1e-5, rtol=0)
    after = server.metrics()
    batches = after["te_batch_next_size_count"] - before["te_batch_next_size_count"]
    joined = after["te_batch_next_size_sum"] - before["te_batch_next_size_sum"]
    assert joined == 96 and batches < 96  # at least some were computed together


def test_a_text_that_is_too_long(server: ServerProcess) -> None:
    long = "the film " * 400
    status, _, body = server.ask("/embed", {"inputs": long})
    assert status == 413 and "tokens" in json.loads(body)["error"]
    assert len(server.ask_json("/embed", {"inputs": long, "truncate": True})[0]) == 32


def test_a_text_that_the_model_cannot_read(server: ServerProcess) -> None:
    for path, body in (
        ("/embed", {"inputs": ["我喜欢这本书", TEXTS[0]]}),
        ("/predict", {"inputs": "我喜欢这本书", "model": CLASSIFIER}),
        ("/v1/embeddings", {"input": "我喜欢这本书", "model": EMBED}),
    ):
        status, headers, _ = server.ask(path, body)
        found = {name.lower(): value for name, value in headers.items()}
        assert status == 200 and "1 text" in found["x-regard-warning"]
    _, headers, _ = server.ask("/embed", {"inputs": TEXTS})
    assert "x-regard-warning" not in {name.lower() for name in headers}


def test_rerank(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    arguments = {"query": "a film", "texts": TEXTS, "return_text": True}
    found = server.ask_json("/rerank", arguments)
    scores = [one["score"] for one in found]
    assert scores == sorted(scores, reverse=True) and all(0 < score < 1 for score in scores)
    assert sorted(one["index"] for one in found) == list(range(len(TEXTS)))
    assert all(one["text"] == TEXTS[one["index"]] for one in found)
    pairs = [["a film", text] for text in TEXTS]
    rows = regard.predict(str(model_folders[RERANKER]), pairs).to_dict()["predictions"]
    assert {one["index"]: one["score"] for one in found} == pytest.approx(
        {row["row"]: row["probabilities"]["1"] for row in rows}, abs=1e-5
    )
    raw = server.ask_json("/rerank", {**arguments, "raw_scores": True, "return_text": False})
    assert [one["index"] for one in raw] == [one["index"] for one in found]
    logistic = [1 / (1 + np.exp(-one["score"])) for one in raw]
    assert logistic == pytest.approx(scores, abs=1e-5) and all(one.get("text") is None for one in raw)


def test_rerank_in_the_form_of_jina_and_cohere(server: ServerProcess) -> None:
    expected = server.ask_json("/rerank", {"query": "a film", "texts": TEXTS})
    documents = [*TEXTS[:2], *({"text": text} for text in TEXTS[2:])]
    arguments = {"model": RERANKER, "query": "a film", "documents": documents}
    found = server.ask_json("/v1/rerank", {**arguments, "return_documents": True, "max_chunks_per_doc": None})
    assert [(one["index"], one["relevance_score"]) for one in found["results"]] == [
        (one["index"], pytest.approx(one["score"], abs=1e-5)) for one in expected
    ]
    assert all(one["document"] == {"text": TEXTS[one["index"]]} for one in found["results"])
    assert found["model"] == RERANKER and found["usage"]["total_tokens"] > len(TEXTS) and found["id"]
    best = server.ask_json("/v1/rerank", {**arguments, "top_n": 2})["results"]
    assert best == [{name: one[name] for name in ("index", "relevance_score")} for one in found["results"][:2]]
    status, headers, _ = server.ask("/v1/rerank", {**arguments, "documents": ["film " * 400, ""]})
    found_headers = {name.lower(): value for name, value in headers.items()}
    assert status == 200 and "was cut" in found_headers["x-regard-warning"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"query": "a", "documents": []}, 422, "documents"),
        ({"query": "a", "documents": [{"title": "b"}]}, 422, "documents"),
        ({"documents": ["b"]}, 422, "query"),
        ({"query": "a", "documents": ["b"], "top_n": 0}, 422, "top_n"),
        ({"query": "a", "documents": ["b"], "max_chunks_per_doc": 3}, 422, "max_chunks_per_doc is not supported"),
        ({"query": "a", "documents": ["b"], "topn": 3}, 422, "topn is no field"),
        ({"query": "a", "documents": ["b"], "model": "nothing"}, 404, "nothing"),
        ({"query": "a", "documents": ["b"], "model": CLASSIFIER}, 422, "query and text together"),
    ],
)
def test_errors_of_v1_rerank_are_those_of_its_clients(
    server: ServerProcess, body: dict[str, object], status: int, message: str
) -> None:
    found, _, data = server.ask("/v1/rerank", body)
    document = json.loads(data)
    assert found == status and message in document["detail"] and document["message"] == document["detail"]


def test_predict(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    rows = regard.predict(str(model_folders[CLASSIFIER]), TEXTS).to_dict()["predictions"]
    found = server.ask_json("/predict", {"inputs": [[text] for text in TEXTS]})
    for row, labels in zip(rows, found, strict=True):
        assert {one["label"]: one["score"] for one in labels} == pytest.approx(row["probabilities"], abs=1e-5)
        assert [one["score"] for one in labels] == sorted((one["score"] for one in labels), reverse=True)
    one = server.ask_json("/predict", {"inputs": TEXTS[0]})
    assert [entry["label"] for entry in one] == [entry["label"] for entry in found[0]]
    raw = server.ask_json("/predict", {"inputs": TEXTS[0], "raw_scores": True})
    assert sum(entry["score"] for entry in raw) != pytest.approx(1.0)


def test_similarity(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    vectors = regard.embed(TEXTS, model=str(model_folders[EMBED]), normalize=True).vectors
    found = server.ask_json("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}})
    assert found == pytest.approx((vectors @ vectors[0]).tolist(), abs=1e-5)


def test_tokenize(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    _, tokenizer = regard.load(model_folders[EMBED])
    found = server.ask_json("/tokenize", {"inputs": TEXTS})
    assert [[token["id"] for token in row] for row in found] == [tokenizer.encode(text).ids for text in TEXTS]
    assert found[0][0]["special"] and not found[0][1]["special"]
    for text, row in zip(TEXTS, found, strict=True):
        words = [text[token["start"] : token["stop"]] for token in row if not token["special"]]
        assert "".join(words) == text.replace(" ", "")
    (plain,) = server.ask_json("/tokenize", {"inputs": TEXTS[0], "add_special_tokens": False})
    assert [token["id"] for token in plain] == tokenizer.encode(TEXTS[0]).ids[1:-1]


def test_info_and_health(server: ServerProcess) -> None:
    info = server.ask_json("/info")
    for name in ("model_id", "model_dtype", "model_type", "max_input_length", "max_batch_tokens", "version"):
        assert name in info, name
    assert info["version"] == regard.__version__
    assert server.ask("/health")[0] == 200


def test_metrics_have_the_names_of_tei(server: ServerProcess) -> None:
    before = server.metrics()
    server.ask_json("/embed", {"inputs": TEXTS[0]})
    server.ask_json("/predict", {"inputs": TEXTS[0]})
    server.ask_json("/rerank", {"query": TEXTS[0], "texts": TEXTS})
    server.ask_json("/tokenize", {"inputs": TEXTS[0]})
    assert server.ask("/embed", {"inputs": []})[0] == 422
    after = server.metrics()
    assert set(METRICS) <= set(after)
    assert {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")} <= set(after)
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["te_embed_count"] >= 1 and grown["te_embed_success"] == 1
    assert grown["te_request_failure"] == 1 and after["te_queue_size"] == 0
    assert grown["te_request_success"] >= 3 and grown["te_request_duration_count"] >= 3
    kind = server.ask("/metrics")[1]["content-type"]
    assert kind.startswith("text/plain")


@pytest.mark.parametrize(
    ("path", "arguments", "field"),
    [
        ("/embed", {}, "inputs"),
        ("/embed", {"inputs": 5}, "inputs"),
        ("/embed", {"inputs": []}, "inputs"),
        ("/embed", {"inputs": "a", "normalize": "perhaps"}, "normalize"),
        ("/rerank", {"texts": ["a"]}, "query"),
        ("/rerank", {"query": "a", "texts": []}, "texts"),
        ("/predict", {"inputs": {"a": 1}}, "inputs"),
        ("/similarity", {"inputs": {"sentences": ["a"]}}, "source_sentence"),
        ("/tokenize", {"inputs": None}, "inputs"),
    ],
)
def test_an_invalid_field_is_named(server: ServerProcess, path: str, arguments: object, field: str) -> None:
    status, headers, body = server.ask(path, arguments)
    answer = json.loads(body)
    assert status == 422 and field in answer["error"] and answer["error_type"]
    assert headers["x-request-id"]


def test_other_errors(server: ServerProcess) -> None:
    assert server.ask("/nothing")[0] == 404
    assert server.ask("/embed")[0] == 405
    status, _, body = server.ask("/embed", {"inputs": ["a"] * 5000})
    assert status in (413, 422) and "inputs" in json.loads(body)["error"]


def test_every_verb_has_its_endpoint(server: ServerProcess) -> None:
    """What the issue calls the HTTP door of every verb."""
    found = server.ask_json("/v1/fill", {"text": "the _ was good", "model": EMBED, "top": 3})
    assert len(found["masks"][0]) == 3 or found
    status, _, body = server.ask("/v1/fill", {"text": "the _ was good", "model": EMBED, "top": "x"})
    assert status == 422 and b"top" in body
    paths = server.ask_json("/openapi.json")["paths"]
    assert {"/v1/fill", "/v1/embeddings", "/v1/completions", "/v1/models", "/embed", "/rerank", "/health"} <= set(paths)


def test_the_log_has_no_texts(server: ServerProcess) -> None:
    server.ask_json("/embed", {"inputs": "a secret sentence about zebras"})
    server.ask("/embed", {"inputs": ["another zebra"] * 5000})
    log = server.log.read_text()
    assert "zebra" not in log
    lines = [json.loads(line) for line in log.splitlines()]
    assert any("/embed" in json.dumps(line) for line in lines)


def test_no_request_reads_or_writes_a_file_or_opens_another_model(server: ServerProcess, tmp_path: Path) -> None:
    secret, written = tmp_path / "secret.txt", tmp_path / "written.npy"
    secret.write_text("zebras\n")
    status, _, body = server.ask("/v1/tokenize", {"source": str(secret), "model": EMBED})
    assert status in (200, 422) and b"zebras" not in body  # the path itself may be the text
    for arguments in ({"output": str(written)}, {"source": [""], "output": str(written)}):
        assert server.ask("/v1/embed", {"source": ["a film"], "model": EMBED, **arguments})[0] == 422
    assert not written.exists()
    for name in (str(tmp_path), "/etc", "owner/model", "../tiny-embed", "regard-bert"):
        assert server.ask("/v1/fill", {"text": "a _", "model": name})[0] == 404
        assert server.ask("/embed", {"inputs": "a film", "model": name})[0] == 404
    for verb in ("train", "pretrain", "export", "index", "doctor", "studio"):
        assert server.ask(f"/v1/{verb}", {})[0] == 404
