"""Sentence map: the Embedder's vectors, scikit-learn's projection, and neighbors in the full space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
import regard.interpret.embeddings as module
from regard.data.examples import TextExample
from regard.errors import InputError
from regard.inference.embedding.embedder import Embedder
from regard.interpret.embeddings import SentenceMap
from tests.interpret.runs import as_loaded, finish


def sentence_map(model: Any, examples: list[TextExample], **options: Any) -> SentenceMap:
    return finish(module.sentence_map(as_loaded(model), examples, **options))


TEXTS = [
    f"{word} {'film ' * (n % 4)}was {other}"
    for n, word in enumerate(["the", "a", "his", "her"])
    for other in ["good", "bad", "dull", "long"]
]


@pytest.mark.parametrize(("layer", "pooling"), [(-1, "mean"), ("concat(-2:)", "cls"), (1, "max")])
def test_points_and_neighbors(layer: int | str, pooling: str, tiny_bert_folder: Path) -> None:
    pca = pytest.importorskip("sklearn.decomposition").PCA(2, svd_solver="full")
    vectors = Embedder(tiny_bert_folder, layers=layer, pooling=pooling, device="cpu").transform(TEXTS)
    found = sentence_map(
        regard.load(tiny_bert_folder), [TextExample(t) for t in TEXTS], layer=layer, pooling=pooling, neighbors=3
    )
    expected = pca.fit_transform(vectors.astype(np.float64))
    np.testing.assert_allclose(np.abs([one.point for one in found.sentences]), np.abs(expected), atol=1e-3)
    np.testing.assert_allclose(found.explained, pca.explained_variance_ratio_, atol=1e-5)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    table = units @ units.T - 3 * np.eye(len(TEXTS))
    np.testing.assert_allclose(
        [[near.cosine for near in one.neighbors] for one in found.sentences], -np.sort(-table, axis=1)[:, :3], atol=1e-5
    )
    assert found.width == vectors.shape[1]


def test_document_and_labels(tiny_bert_folder: Path) -> None:
    examples = [
        TextExample("the film", label="a"),
        TextExample("  "),
        TextExample("the day", label=("x", "y")),
        TextExample("a film"),
    ]
    found = sentence_map(str(tiny_bert_folder), examples, neighbors=5)
    document = found.to_dict()
    sentences = document["sentences"]
    assert isinstance(sentences, list)
    assert [(one["text"], one["label"]) for one in sentences] == [
        ("the film", "a"),
        ("the day", "x, y"),
        ("a film", ""),
    ]
    assert [len(one["neighbors"]) for one in sentences] == [2, 2, 2]
    assert {near["index"] for near in sentences[0]["neighbors"]} == {1, 2}
    assert sentences[0]["point"] == np.round(found.sentences[0].point, 6).tolist()
    assert (document["total"], document["cut"], found.notes) == (3, 0, [])
    plain = sentence_map(str(tiny_bert_folder), [TextExample("one"), TextExample("two")])
    assert {one.label for one in plain.sentences} == {None}


def test_sampling_and_truncation_are_reported(tiny_bert_folder: Path) -> None:
    examples = [TextExample(text) for text in [*TEXTS, "so " * 300]]
    found = sentence_map(str(tiny_bert_folder), examples, limit=6, seed=2)
    again = sentence_map(str(tiny_bert_folder), examples, limit=6, seed=2)
    assert found == again and len(found.sentences) == 6
    assert all(part in found.notes[0] for part in ("6 of 17 texts", "seed 2", "11 are left out"))
    whole = sentence_map(str(tiny_bert_folder), examples)
    (note,) = whole.notes
    assert note.startswith("1 text ") and "truncated" in note


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        (["one"], {}, "two sentences or more, got 1"),
        (["a", "b"], {"pooling": "men"}, "mean"),
        (["a", "b"], {"layer": "7"}, "layers 0 to 2"),
    ],
)
def test_invalid_arguments_are_rejected(
    examples: list[str], options: dict[str, object], message: str, tiny_bert_folder: Path
) -> None:
    with pytest.raises(InputError, match=message):
        sentence_map(str(tiny_bert_folder), [TextExample(text) for text in examples], **options)
    with pytest.raises(InputError, match="neighbors is 0"):
        regard.sentence_map(examples, neighbors=0)
    with pytest.raises(InputError, match="pooling is 'none'; expected 'mean', 'cls' or 'max'"):
        regard.sentence_map(examples, pooling="none")
