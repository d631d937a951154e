"""Scores of multi-vector models equal those of sentence-transformers' MultiVectorEncoder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.inference.search.maxsim import MaxSimReranker
from regard.server.errors import RequestError
from regard.server.models.registry import ModelOptions
from regard.server.models.served_model import ServedModel
from regard.server.protocols.rerank import best_first
from tests.inference.embedding.sparse_folders import TEXTS, change, multi_vector_encoder

QUERIES = ["a blue mat", "", "the cat, the dog and the red bird ran on the mat! the cat sat. a dog"]
FIXED = {"strategy": "fixed", "length": 11}


def expected(folder: Path, query: str, texts: list[str]) -> list[float]:
    from sentence_transformers.multi_vector_encoder import MultiVectorEncoder

    model = MultiVectorEncoder(str(folder), device="cpu")
    found: list[float] = model.similarity(model.encode_query([query]), model.encode_document(texts))[0].tolist()
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize": False, "activation": "Tanh", "dense": 31},
        {"document_length": 9, "query_length": 6},
        {"mask": {"skiplist_words": [".", ",", "!", "…"]}},
        {"mask": {"skiplist_words": [",", "the"], "skiplist_tasks": ["query", "document"]}},
        {"query_expansion": FIXED},
        {"query_expansion": {**FIXED, "attend": True}},
        {"query_expansion": {"strategy": "min", "length": 8, "token": "[PAD]"}, "similarity_fn_name": "meanmaxsim"},
        {"prompts": {"query": "query : ", "document": "search : "}, "query_expansion": FIXED},
    ],
    ids=str,
)
def test_scores_are_those_of_multi_vector_encoder(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = multi_vector_encoder(tmp_path / "model", **options)
    model = MaxSimReranker(load_model(folder))
    for query in QUERIES:
        found = [one.logit for one in model.relevance_of(query, TEXTS)]
        assert found == pytest.approx(expected(folder, query, TEXTS), abs=1e-5)


def test_search_reranks_and_explains(tmp_path: Path, tiny_bert_folder: Path) -> None:
    folder = multi_vector_encoder(tmp_path / "model", query_expansion=FIXED)
    texts = [text for text in TEXTS if text]
    result = regard.search(texts, "a blue mat", model=tiny_bert_folder, rerank=folder, explain=True)
    hits = result.results[0].hits
    scores = expected(folder, "a blue mat", texts)
    assert [hit.row for hit in hits] == sorted(range(len(texts)), key=lambda row: -scores[row])
    assert [hit.score for hit in hits] == pytest.approx(sorted(scores, reverse=True), abs=1e-5)
    for hit in hits:
        assert hit.explanation is not None
        one, total = hit.explanation[-1], 0.0
        for part in one.parts:
            total += part.contribution
        assert one.method == "maxsim"
        assert total == one.value == hit.score
        assert len(one.parts) == FIXED["length"]
    index = regard.index(texts, model=tiny_bert_folder)
    again = index.search("a blue mat", rerank=folder).results[0].hits
    assert [hit.score for hit in again] == [hit.score for hit in hits]


def test_rerank_orders_rows_by_maxsim(tmp_path: Path) -> None:
    folder = multi_vector_encoder(tmp_path / "model", query_expansion=FIXED)
    texts = [text for text in TEXTS if text]
    found = regard.rerank("a blue mat", [*texts, ""], model=folder)
    scores = expected(folder, "a blue mat", texts)
    assert [one.row for one in found.results[:-1]] == sorted(range(len(texts)), key=lambda row: -scores[row])
    assert [one.score for one in found.results[:-1]] == pytest.approx(sorted(scores, reverse=True), abs=1e-5)
    assert [one.logit for one in found.results] == [one.score for one in found.results]
    assert found.results[-1].score is None and found.blank == 1
    auto = regard.rerank("a blue mat", texts, model=folder, precision="auto")
    assert sorted(one.row for one in auto.results) == list(range(len(texts)))


def test_a_multi_vector_model_is_served(tmp_path: Path) -> None:
    folder = multi_vector_encoder(tmp_path / "model", query_expansion=FIXED)
    setup = {"name": "mv", "path": str(folder), "lane": "serving", **asdict(ModelOptions(threads=1))}
    model = ServedModel(setup)
    assert model.info()["operations"] == ["rerank", "tokenize"]
    service = model.services["task"]
    arguments = {"param": "texts", "truncate": True, "rerank": True}
    texts = [*TEXTS, "the red bird ran " * 200]  # several parts, and one text that is cut
    requests = [service.prepare({"texts": [(query, text) for text in texts], **arguments}) for query in QUERIES[::2]]
    results = service.compute([content for one in requests for _, content in one.parts])
    for query, request in zip(QUERIES[::2], requests, strict=True):
        own, results = results[: len(request.parts)], results[len(request.parts) :]
        assert "was cut" in request.warning
        assert [logit for _, logit in request.finish(own)] == [None] * len(texts)
        scores = expected(folder, query, texts)
        assert [score for score, _ in request.finish(own)] == pytest.approx(scores, abs=1e-5)
        assert best_first(request.finish(own)) == sorted(range(len(texts)), key=lambda row: -scores[row])
    with pytest.raises(RequestError, match="input 0 has more"):
        service.prepare({"texts": [("a", texts[-1])], **arguments, "truncate": False})


def test_what_is_not_followed_is_refused_by_name(tmp_path: Path) -> None:
    folder = multi_vector_encoder(tmp_path / "model")
    loaded = load_model(folder)
    mask, settings, dense = "2_MultiVectorMask/config.json", "config_sentence_transformers.json", "1_Dense/config.json"
    for name, values, message in (
        (mask, {"keep_only_token_ids": [3]}, "keep_only_token_ids"),
        (mask, {"skiplist_tasks": ["image"]}, "image"),
        (settings, {"similarity_fn_name": "xtr"}, "xtr"),
        (settings, {"truncate_dim": 3}, "truncate_dim"),
        (settings, {"model_type": "SentenceTransformer"}, "MultiVectorEncoder"),
        (dense, {"module_input_name": "sentence_embedding"}, "module_input_name"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "most", "length": 3}}, "query_expansion"),
        ("sentence_bert_config.json", {"query_expansion": {**FIXED, "depth": 3}}, "depth"),
    ):
        before = (folder / name).read_text()
        change(folder / name, **values)
        with pytest.raises(InputError, match=message):
            MaxSimReranker(loaded)
        (folder / name).write_text(before)
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.multi_vector_encoder.modules.HierarchicalTokenPooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="HierarchicalTokenPooling"):
        MaxSimReranker(loaded)
