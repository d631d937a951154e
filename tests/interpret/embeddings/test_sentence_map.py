"""A map of sentences: the Embedder's vectors, scikit-learn's plane, neighbours of the full space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import regard
from regard.data.examples import TextExample
from regard.errors import InputError
from regard.inference.embedding.embedder import Embedder
from regard.interpret.embeddings.sentence_map import sentence_map

TEXTS = [
    f"{word} {'film ' * (n % 4)}was {other}"
    for n, word in enumerate(["the", "a", "his", "her"])
    for other in ["good", "bad", "dull", "long"]
]


@pytest.mark.parametrize(("layer", "pooling"), [(-1, "mean"), ("concat(-2:)", "cls"), (1, "max")])
def test_points_and_neighbours(layer: int | str, pooling: str, tiny_bert_folder: Path) -> None:
    pca = pytest.importorskip("sklearn.decomposition").PCA(2, svd_solver="full")
    vectors = Embedder(tiny_bert_folder, layers=layer, pooling=pooling, device="cpu").transform(TEXTS)
    found = sentence_map(
        regard.load(tiny_bert_folder), [TextExample(t) for t in TEXTS], layer=layer, pooling=pooling, count=3
    )
    expected = pca.fit_transform(vectors.astype(np.float64))
    np.testing.assert_allclose(np.abs(found.plane.points), np.abs(expected), atol=1e-3)
    np.testing.assert_allclose(found.plane.explained, pca.explained_variance_ratio_, atol=1e-5)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    table = units @ units.T - 3 * np.eye(len(TEXTS))
    np.testing.assert_allclose(found.neighbours.cosines, -np.sort(-table, axis=1)[:, :3], atol=1e-5)
    assert found.width == vectors.shape[1]


def test_document_and_labels(tiny_bert_folder: Path) -> None:
    examples = [
        TextExample("the film", label="a"),
        TextExample("  "),
        TextExample("the day", label=("x", "y")),
        TextExample("a film"),
    ]
    found = sentence_map(str(tiny_bert_folder), examples, count=5, device="cpu")
    document = found.document()
    sentences = document["sentences"]
    assert isinstance(sentences, list)
    assert [(one["text"], one["label"]) for one in sentences] == [
        ("the film", "a"),
        ("the day", "x, y"),
        ("a film", ""),
    ]
    assert [len(one["neighbours"]) for one in sentences] == [2, 2, 2]
    assert {near["place"] for near in sentences[0]["neighbours"]} == {1, 2}
    assert sentences[0]["point"] == np.round(found.plane.points[0], 6).tolist()
    assert (document["total"], document["cut"], found.notes()) == (3, 0, [])
    plain = sentence_map(str(tiny_bert_folder), [TextExample("one"), TextExample("two")])
    assert plain.labels is None


def test_large_and_long_are_told(tiny_bert_folder: Path) -> None:
    examples = [TextExample(text) for text in [*TEXTS, "so " * 300]]
    found = sentence_map(str(tiny_bert_folder), examples, limit=6, seed=2)
    again = sentence_map(str(tiny_bert_folder), examples, limit=6, seed=2)
    assert found.texts == again.texts and len(found.texts) == 6
    assert found.notes()[0] == "6 of 17 texts were drawn by lot (seed 2); 11 are left out"
    whole = sentence_map(str(tiny_bert_folder), examples)
    assert whole.notes() == ["1 text had more tokens than the model reads, and the rest was cut"]


@pytest.mark.parametrize(
    ("examples", "options", "said"),
    [
        (["one"], {}, "two sentences or more, got 1"),
        (["a", "b"], {"pooling": "none"}, "one a sentence"),
        (["a", "b"], {"pooling": "men"}, "mean"),
        (["a", "b"], {"count": 0}, "0 neighbours"),
        (["a", "b"], {"layer": "7"}, "layers 0 to 2"),
    ],
)
def test_mistakes(examples: list[str], options: dict[str, object], said: str, tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match=said):
        sentence_map(str(tiny_bert_folder), [TextExample(text) for text in examples], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [None, ["x", "y's", "x"]])
def test_the_python_lines_reproduce_the_payload(labels: list[str] | None, tiny_bert_folder: Path) -> None:
    texts = ["the film", "it's a day", "a film"]
    examples = [TextExample(text, label=None if labels is None else labels[n]) for n, text in enumerate(texts)]
    payload = sentence_map(str(tiny_bert_folder), examples, count=2).payload(str(tiny_bert_folder))
    *head, last = str(payload["python"]).split("\n")
    scope: dict[str, object] = {}
    exec("\n".join(head), scope)
    found = eval(last, scope)
    assert found == {name: payload[name] for name in found}
    assert str(payload["cli"]).startswith("printf '%s\\n' ")
