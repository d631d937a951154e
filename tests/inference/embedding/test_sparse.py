"""Sparse vectors equal those of sentence-transformers' SparseEncoder; what its folders say otherwise is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.errors import InputError
from regard.inference.embedding import sparse
from regard.inference.embedding.sparse import SparseEngine, SparseVectors
from regard.inference.load_model import load_model
from tests.inference.embedding.sparse_folders import TEXTS, TOKENS, change, masked_lm, sparse_encoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_encoder(tmp_path_factory.mktemp("splade") / "model", max_active_dims=7)


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_encoder(tmp_path_factory.mktemp("router") / "model", static=True, activation="log1p_relu")


def reference(folder: Path, task: str, texts: list[str] = TEXTS) -> np.ndarray[Any, Any]:
    from sentence_transformers.sparse_encoder import SparseEncoder

    model = SparseEncoder(str(folder), device="cpu")
    encode = model.encode_query if task == "query" else model.encode_document
    return np.asarray(encode(texts).to_dense())


def encoded(folder: Path, task: Any = "document", texts: list[str] = TEXTS, **options: Any) -> np.ndarray[Any, Any]:
    return SparseEngine(load_model(folder), task=task, **options).encode(texts).toarray()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "sum"},
        {"activation": "log1p_relu", "kind": "distilbert"},
        {"pooling": "sum", "activation": "log1p_relu", "max_active_dims": 5},
        {"prompts": {"query": "query : ", "passage": "search : "}},
        {"prompts": {"all": "search : "}, "default_prompt_name": "all"},
        {"static": True, "pooling": "sum", "prompts": {"query": "query : "}},
    ],
    ids=str,
)
def test_vectors_are_those_of_sparse_encoder(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = sparse_encoder(tmp_path / "model", **options)
    for task in ("document", "query"):
        expected = reference(folder, task)
        np.testing.assert_allclose(encoded(folder, task), expected, atol=1e-5)
        assert ((expected > 0) == (encoded(folder, task) > 0)).all()


def test_a_masked_language_model_alone(tmp_path: Path) -> None:
    folder = masked_lm(tmp_path / "model")
    np.testing.assert_allclose(encoded(folder), reference(folder, "document"), atol=1e-5)


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_few_logits_at_a_time_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pooling: str) -> None:
    folder = sparse_encoder(tmp_path / "model", pooling=pooling)
    whole = encoded(folder)
    for tokens in (1, 2, 5):
        monkeypatch.setitem(sparse.HEAD_FLOATS, "cpu", tokens * len(TOKENS))
        np.testing.assert_allclose(encoded(folder), whole, atol=1e-5)


def test_precision_int8_is_close(folder: Path) -> None:
    from regard.engine.precision import supports_int8

    if not supports_int8():
        pytest.skip("this CPU has no fast 8-bit products")
    whole, small = encoded(folder, max_active_dims=99), encoded(folder, max_active_dims=99, precision="int8")
    cosines = (whole * small).sum(1) / np.linalg.norm(whole, axis=1) / np.linalg.norm(small, axis=1)
    assert 0.95 < cosines.min() <= 1.00001
    assert not np.array_equal(whole, small)


def test_select_repeats_and_leaves_out_rows() -> None:
    vectors = SparseVectors(
        np.array([0, 2, 2, 3]), np.array([1, 3, 0], dtype=np.int32), np.array([5, 6, 7], dtype=np.float32), 4
    )
    rows = vectors.select(np.array([2, -1, 0, 1, 0])).toarray()
    np.testing.assert_array_equal(rows, [[7, 0, 0, 0], [0, 0, 0, 0], [0, 5, 0, 6], [0, 0, 0, 0], [0, 5, 0, 6]])


def test_embed_in_python(folder: Path) -> None:
    result = regard.embed(TEXTS, model=folder, kind="sparse")
    np.testing.assert_allclose(result.sparse.toarray()[[0, 1, 3, 4, 5]], encoded(folder)[[0, 1, 3, 4, 5]], atol=1e-6)
    assert result.to_dict()["vectors"][2] is None
    assert len(result.to_dict()["vectors"][0]) == 7
    weights = result.weights[0]
    assert list(weights.values()) == sorted(weights.values(), reverse=True)
    assert set(weights) <= set(TOKENS)
    assert next(iter(weights)) in result.to_text().splitlines()[0]
    with pytest.raises(InputError, match=r"result\.sparse"):
        _ = result.vectors
    with pytest.raises(InputError, match="kind sparse"):
        regard.embed(TEXTS[:1], model=folder)
    with pytest.raises(InputError, match="dense"):
        _ = regard.embed(TEXTS[:1], model=folder.with_name("model-base")).sparse


def test_files_hold_the_same(tmp_path: Path, router: Path) -> None:
    expected = encoded(router, "query")
    for suffix in (".jsonl", ".npz", ".parquet"):
        output = tmp_path / f"vectors{suffix}"
        regard.embed(TEXTS, output=output, model=router, kind="sparse", task="query", shard_size=2)
    lines = [json.loads(line) for line in (tmp_path / "vectors.jsonl").read_text().splitlines()]
    assert [one["line"] for one in lines] == [1, 2, 3, 4, 5, 6]
    assert lines[2]["weights"] is None
    for line, row in zip(lines, expected, strict=True):
        if line["weights"] is not None:
            assert line["weights"] == pytest.approx({TOKENS[i]: row[i] for i in np.flatnonzero(row)}, abs=1e-6)
    load_npz = pytest.importorskip("scipy.sparse").load_npz
    np.testing.assert_allclose(load_npz(tmp_path / "vectors.npz").toarray()[[0, 5]], expected[[0, 5]], atol=1e-6)
    table = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "vectors.parquet").to_pylist()
    assert table[2]["weights"] is None
    assert [TOKENS[i] for i in table[0]["indices"]] == table[0]["tokens"]
    np.testing.assert_allclose(table[0]["weights"], expected[0][table[0]["indices"]], atol=1e-6)


def test_options_of_the_other_kind_are_refused(folder: Path, tmp_path: Path) -> None:
    for options, named in (
        ({"pooling": "mean", "kind": "sparse"}, "pooling mean"),
        ({"normalize": False, "kind": "sparse"}, "normalize False"),
        ({"layers": "0", "kind": "sparse"}, "layers 0"),
        ({"task": "query"}, "task query"),
        ({"max_active_dims": 3}, "max_active_dims 3"),
        ({"kind": "sparse", "long": "windows"}, "windows"),
    ):
        with pytest.raises(InputError, match=named):
            regard.embed(["the cat"], model=folder, **options)
    with pytest.raises(InputError, match=r"\.jsonl"):
        regard.embed(["the cat"], output=tmp_path / "x.npy", model=folder, kind="sparse")


def test_what_is_not_followed_is_refused_by_name(tmp_path: Path) -> None:
    folder = sparse_encoder(tmp_path / "model")
    loaded = load_model(folder)
    settings, pooling = "config_sentence_transformers.json", "1_SpladePooling/config.json"
    transformer = "sentence_bert_config.json"
    for name, values, message in (
        (pooling, {"pooling_strategy": "mean"}, "pooling_strategy"),
        (pooling, {"activation_function": "gelu"}, "activation_function"),
        (pooling, {"topk": 7}, "topk"),
        (settings, {"max_active_dims": 0}, "max_active_dims"),
        (settings, {"similarity_fn_name": "cosine"}, "cosine"),
        (settings, {"default_prompt_name": "none"}, "default_prompt_name"),
        (settings, {"query_template": "q"}, "query_template"),
        (transformer, {"transformer_task": "feature-extraction"}, "transformer_task"),
        (transformer, {"do_lower_case": True}, "do_lower_case"),
        (transformer, {"processing_kwargs": {"text": {"max_length": 5}}}, "processing_kwargs"),
    ):
        before = (folder / name).read_text()
        change(folder / name, **values)
        with pytest.raises(InputError, match=message):
            SparseEngine(loaded)
        (folder / name).write_text(before)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "sentence_transformers.sparse_encoder.modules.SparseAutoEncoder"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="SparseAutoEncoder"):
        SparseEngine(loaded)
    modules[1]["type"] = "custom_code.SpladePooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"custom_code\.SpladePooling"):
        SparseEngine(loaded)
    modules[1] |= {"type": "sentence_transformers.sparse_encoder.modules.SpladePooling", "path": "../elsewhere"}
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="elsewhere"):
        SparseEngine(loaded)


def test_routes_that_are_not_followed_are_refused(tmp_path: Path) -> None:
    folder = sparse_encoder(tmp_path / "model", static=True)
    loaded = load_model(folder)
    path = folder / "router_config.json"
    before = json.loads(path.read_text())
    for changed, message in (
        ({"parameters": {"route_mappings": {"a": "b"}}}, "route_mappings"),
        ({"structure": {"query": before["structure"]["query"]}}, "document"),
    ):
        change(path, **changed)
        with pytest.raises(InputError, match=message):
            SparseEngine(loaded)
        path.write_text(json.dumps(before))


def test_models_without_the_head_are_refused(tmp_path: Path) -> None:
    import transformers

    folder = masked_lm(tmp_path / "model")
    transformers.AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "encoder")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "encoder")
    with pytest.raises(InputError, match="head"):
        SparseEngine(load_model(tmp_path / "encoder"))


def test_weights_by_token_in_a_json_file(tmp_path: Path, router: Path) -> None:
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(router, folder)
    (query,) = folder.glob("query_*")
    (query / "model.safetensors").unlink()
    (query / "idf.json").write_text(json.dumps({"cat": 2.5, "sat": 0.5}))
    change(query / "config.json", path="idf.json")
    (row,) = SparseEngine(load_model(folder), task="query").encode(["the cat sat"])
    assert {TOKENS[i]: float(v) for i, v in zip(*row, strict=True)} == {"cat": 2.5, "sat": 0.5}
    (query / "idf.json").write_text(json.dumps({"unknown": 2.5}))
    with pytest.raises(InputError, match="unknown"):
        SparseEngine(load_model(folder), task="query")
