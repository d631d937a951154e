"""Search of sparse vectors: scores are those of the matrix product, in an index that is extended and thinned out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError, RegardError
from regard.events import drain
from regard.inference.load_model import load_model
from regard.inference.search import inverted
from regard.inference.search.build import add_documents
from regard.inference.search.documents import IndexedText
from regard.inference.search.index import Index, open_index
from regard.inference.search.inverted import (
    SparsePostings,
    SparseRow,
    contributions,
    join_sparse,
    search_sparse,
    total_of,
    write_sparse,
)
from tests.inference.embedding.sparse_folders import change, sparse_encoder

TEXTS = ["the cat sat on the mat", "a dog ran", "red bird", "the blue dog sat", "a green mat", "bird, bird, bird!"]


def postings(folder: Path, matrix: np.ndarray[Any, Any]) -> SparsePostings:
    folder.mkdir(parents=True, exist_ok=True)
    owners, columns = np.nonzero(matrix)
    np.savez(
        folder / "vectors.npz",
        shape=np.array(matrix.shape),
        indptr=np.searchsorted(owners, np.arange(len(matrix) + 1)),
        indices=columns.astype(np.int32),
        data=matrix[owners, columns].astype(np.float32),
    )
    write_sparse(folder, folder / "vectors.npz")
    return SparsePostings(folder, len(matrix))


def row(vector: np.ndarray[Any, Any]) -> SparseRow:
    indices = np.flatnonzero(vector)
    return SparseRow(indices.astype(np.int32), vector[indices].astype(np.float32))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), chunk=st.sampled_from([1, 3, 7, 1 << 20]), top=st.integers(1, 12))
def test_scores_are_those_of_the_matrix_product(
    tmp_path_factory: pytest.TempPathFactory, seed: int, chunk: int, top: int
) -> None:
    generator = np.random.default_rng(seed)
    sizes, width = generator.integers(1, 9, 3), int(generator.integers(1, 11))
    matrix = np.round(generator.random((int(sizes.sum()), width)), 1) * (
        generator.random((int(sizes.sum()), width)) < 0.4
    )
    matrix = matrix.astype(np.float32)
    query = row((generator.random(width) * (generator.random(width) < 0.6)).astype(np.float32))
    deleted = np.sort(generator.choice(len(matrix), len(matrix) // 4, replace=False)).astype(np.int64)
    folder = tmp_path_factory.mktemp("postings")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inverted, "CHUNK", chunk)
        parts = [postings(folder / str(n), part) for n, part in enumerate(np.split(matrix, np.cumsum(sizes)[:-1]))]
        kept = np.ones(len(matrix), dtype=bool)
        kept[deleted] = False
        joined = folder / "joined"
        joined.mkdir()
        join_sparse(joined, parts, kept)
    dense = np.zeros(width)
    dense[query.indices] = query.values
    exact = matrix.astype(np.float64) @ dense
    found = search_sparse(query, parts, top, deleted=deleted)
    wanted = [n for n in sorted(range(len(matrix)), key=lambda n: (-exact[n], n)) if kept[n] and exact[n] > 0][:top]
    np.testing.assert_allclose(found.scores, exact[found.positions], rtol=1e-12)
    np.testing.assert_allclose(found.scores, exact[wanted], rtol=1e-12)
    parts_of = contributions(query, parts, found.positions)
    assert (total_of(parts_of) == found.scores).all()
    again = search_sparse(query, [SparsePostings(joined, int(kept.sum()))], top)
    assert np.flatnonzero(kept)[again.positions].tolist() == found.positions.tolist()
    assert again.scores.tolist() == found.scores.tolist()


def test_equal_rows_are_in_order_even_if_there_are_many(tmp_path: Path) -> None:
    parts = [postings(tmp_path / "one", np.full((500, 3), 0.1, dtype=np.float32))]
    found = search_sparse(row(np.array([1.0, 0, 2.0])), parts, 7)
    assert found.positions.tolist() == list(range(7))


@pytest.fixture(scope="module")
def splade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_encoder(tmp_path_factory.mktemp("splade") / "model", static=True)


@pytest.fixture(scope="module")
def dense(tiny_bert_folder: Path) -> LoadedModel:
    return load_model(tiny_bert_folder)


def build(folder: Path, dense: LoadedModel, splade: Path | None, texts: list[str], **options: Any) -> Index:
    documents = [IndexedText(0, number, text, {}) for number, text in enumerate(texts)]
    load_sparse = {"load_sparse": lambda name: load_model(splade)} if splade is not None else {}
    drain(add_documents(folder, lambda: documents, lambda name: dense, **load_sparse, **options))
    return open_index(folder)


def expected(splade: Path, query: str, texts: list[str]) -> np.ndarray[Any, Any]:
    from sentence_transformers.sparse_encoder import SparseEncoder

    model = SparseEncoder(str(splade), device="cpu")
    return np.asarray(model.similarity(model.encode_query([query]), model.encode_document(texts)))[0]


def test_hits_are_those_of_sparse_encoder(tmp_path: Path, dense: LoadedModel, splade: Path) -> None:
    index = build(tmp_path / "index", dense, splade, TEXTS)
    result = index.search("a blue mat", method="splade")
    scores = expected(splade, "a blue mat", TEXTS)
    assert [hit.row for hit in result.results[0].hits] == np.argsort(-scores, kind="stable").tolist()
    np.testing.assert_allclose([hit.score for hit in result.results[0].hits], np.sort(scores)[::-1], rtol=1e-5)
    assert result.model == str(splade)


def test_an_index_with_sparse_vectors_is_extended_and_thinned_out(
    tmp_path: Path, dense: LoadedModel, splade: Path
) -> None:
    build(tmp_path / "index", dense, splade, TEXTS[:3])
    index = build(tmp_path / "index", dense, splade, TEXTS[3:], append=True)
    whole = build(tmp_path / "whole", dense, splade, TEXTS)
    for method in ("splade", "hybrid"):
        assert index.search("the dog", method=method).results == whole.search("the dog", method=method).results  # type: ignore[arg-type]
    index.delete([1, 5])
    before = index.search("the dog", method="splade").results[0].hits
    assert {hit.row for hit in before} == {0, 2, 3, 4}
    index.compact()
    assert len(index.segments) == 1
    assert index.search("the dog", method="splade").results[0].hits == before
    index.verify()
    index.save(tmp_path / "copy")
    path = next((tmp_path / "copy" / "segments").glob("*")) / inverted.VALUES
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(RegardError, match=inverted.VALUES):
        open_index(tmp_path / "copy").verify()


def test_hybrid_combines_three_rankings(tmp_path: Path, dense: LoadedModel, splade: Path) -> None:
    index = build(tmp_path / "index", dense, splade, TEXTS)
    ranks: dict[int, float] = {}
    for method in ("dense", "bm25", "splade"):
        for hit in index.search("the dog", method=method).results[0].hits:  # type: ignore[arg-type]
            ranks[hit.row] = ranks.get(hit.row, 0) + 1 / (60 + hit.rank)
    hits = index.search("the dog", method="hybrid").results[0].hits
    assert {hit.row: hit.score for hit in hits} == pytest.approx(ranks)


def test_other_models_and_missing_vectors_are_refused(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, dense: LoadedModel, splade: Path
) -> None:
    plain = build(tmp_path / "plain", dense, None, TEXTS)
    with pytest.raises(InputError, match="no sparse vectors"):
        plain.search("the dog", method="splade")
    index = build(tmp_path / "index", dense, splade, TEXTS)
    other = sparse_encoder(tmp_path_factory.mktemp("other") / "model", static=True)
    index.use_sparse_model(load_model(other))  # the same weights elsewhere
    change(other / "document_1_SpladePooling" / "config.json", activation_function="log1p_relu")
    with pytest.raises(InputError, match="settings"):
        index.use_sparse_model(load_model(other))
    with pytest.raises(InputError, match="weights"):
        index.use_sparse_model(load_model(sparse_encoder(tmp_path / "third", kind="distilbert")))


def test_in_python(splade: Path, tiny_bert_folder: Path) -> None:
    index = regard.index(TEXTS, model=tiny_bert_folder, sparse=splade)
    direct = regard.search(TEXTS, "the dog", method="splade", model=tiny_bert_folder, sparse=splade)
    assert index.search("the dog", method="splade").results == direct.results
    index.add(["the dog, the dog"])
    assert "the dog, the dog" in [hit.text for hit in index.search("the dog", method="splade").results[0].hits]
