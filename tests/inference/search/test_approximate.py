"""The approximate index: its recall, deleted rows, segments without one, and that only an intact file is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from regard.errors import InputError, RegardError
from regard.events import drain
from regard.inference.load_model import load_model
from regard.inference.search import approximate, index_folder
from regard.inference.search.approximate import APPROXIMATE, ApproximateIndex, num_cells, write_approximate
from regard.inference.search.build import add_documents
from regard.inference.search.documents import IndexedText
from regard.inference.search.exact import search_exact
from regard.inference.search.index import Index, open_index

pytest.importorskip("faiss")


def clustered(rows: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centers = np.random.default_rng(9).standard_normal((20, 16))
    vectors = centers[generator.integers(20, size=rows)] + 0.4 * generator.standard_normal((rows, 16))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_recall_and_deleted_rows(tmp_path: Path) -> None:
    vectors, queries = clustered(3000), clustered(50, seed=1)
    assert write_approximate(tmp_path, vectors) >= 0.99
    index = ApproximateIndex(tmp_path)
    assert index._index.nlist == num_cells(3000)
    for deleted in (None, np.arange(0, 3000, 3)):
        expected = search_exact(queries, vectors, 10, deleted=deleted)
        found = index.search(queries, vectors, 10, deleted=deleted)
        recall = np.mean([len(set(a.positions) & set(b.positions)) / 10 for a, b in zip(found, expected, strict=True)])
        assert recall >= 0.97
        assert deleted is None or not any(set(one.positions) & set(deleted) for one in found)
    exact = {int(p): s for p, s in zip(expected[0].positions, expected[0].scores, strict=True)}
    assert all(exact[p] == s for p, s in zip(found[0].positions.tolist(), found[0].scores, strict=True) if p in exact)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_approximate(tmp_path / name, clustered(500))
    assert (tmp_path / "a" / APPROXIMATE).read_bytes() == (tmp_path / "b" / APPROXIMATE).read_bytes()


@pytest.fixture
def index(tmp_path: Path, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setattr(index_folder, "MIN_ROWS", 5)
    model = load_model(tiny_bert_folder)
    words = ["film", "water", "day", "word", "people", "sound", "side", "number"]
    texts = [f"the {first} and the {second}" for first in words for second in words]
    for part, append in ((texts[:60], False), (texts[60:], True)):  # the second segment is too small for one
        documents = [IndexedText(0, row, text) for row, text in enumerate(part)]
        drain(add_documents(tmp_path / "i", lambda d=documents: d, lambda name: model, append=append, approximate=True))
    found = open_index(tmp_path / "i")
    found.use_model(model)
    return found


def test_segments_with_and_without_one(index: Index) -> None:
    assert [one.is_approximate for one in index.segments] == [True, False]
    for query in ("the film and the water", "the number and the side"):
        approximately = index.search(query, 3, approximate=True).results[0].hits
        assert approximately == index.search(query, 3).results[0].hits
        assert approximately[0].text == query
    index.delete([1])
    assert 1 not in {hit.row for hit in index.search("the film and the water", 64, approximate=True).results[0].hits}
    index.compact()
    assert [one.is_approximate for one in index.segments] == [True]


def test_a_changed_file_is_not_given_to_faiss(index: Index) -> None:
    path = index.segments[0].folder / APPROXIMATE
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(RegardError, match="SHA-256 does not match"):
        open_and_search(index)


def open_and_search(index: Index) -> None:
    again = open_index(index.folder)
    again.use_model(index.loaded_model())
    again.search("film", approximate=True)


def test_without_faiss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(InputError, match=r"regard\[search\]"):
        approximate.write_approximate(tmp_path, clustered(10))
