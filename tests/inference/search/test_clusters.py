"""k-means equals scikit-learn's; near-duplicates are those of a comparison of all pairs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.events import drain
from regard.inference.load_model import load_model
from regard.inference.search import duplicates
from regard.inference.search.bm25 import words_of
from regard.inference.search.build import add_documents
from regard.inference.search.clusters import characteristic_words, find_clusters, kmeans, silhouette
from regard.inference.search.documents import IndexedText
from regard.inference.search.duplicates import connect, find_duplicates
from regard.inference.search.index import Index, open_index


def blobs(clusters: int, rows: int = 400, width: int = 12, spread: float = 0.25, seed: int = 0) -> torch.Tensor:
    generator = np.random.default_rng(seed)
    centers = generator.standard_normal((clusters, width))
    vectors = centers[generator.integers(clusters, size=rows)] + spread * generator.standard_normal((rows, width))
    return torch.from_numpy((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))


@pytest.mark.parametrize(("clusters", "spread"), [(3, 0.2), (8, 0.25), (12, 2.0)])
def test_the_inertia_is_that_of_scikit_learn(clusters: int, spread: float) -> None:
    from sklearn.cluster import KMeans

    vectors = blobs(clusters, spread=spread)
    ours = drain(kmeans(vectors, clusters, seed=1))
    theirs = KMeans(clusters, n_init=3, random_state=0).fit(vectors.numpy())
    assert ours.inertia <= theirs.inertia_ * 1.02
    expected = KMeans(clusters, init=ours.centers.numpy(), n_init=1, max_iter=1).fit(vectors.numpy())
    assert ours.inertia == pytest.approx(expected.inertia_, rel=1e-3)
    assert np.bincount(ours.labels, minlength=clusters).min() > 0


def test_the_same_seed_gives_the_same_clusters() -> None:
    first, second = (drain(kmeans(blobs(5), 5, seed=3)) for _ in range(2))
    assert torch.equal(first.centers, second.centers) and np.array_equal(first.labels, second.labels)


def test_as_many_clusters_as_different_rows() -> None:
    vectors = torch.eye(4).repeat(3, 1)
    fitted = drain(kmeans(vectors, 4))
    assert fitted.inertia == pytest.approx(0, abs=1e-5)
    assert silhouette(vectors, fitted.centers, fitted.labels) == pytest.approx(1, abs=1e-2)


def texts_of(*texts: str) -> list[list[str]]:
    return [words_of(text) for text in texts]


def test_words_that_are_frequent_here_and_rare_elsewhere() -> None:
    dogs = texts_of("the dog barks", "a dog of the 2026 show", "the dog sleeps in the sun")
    stocks = texts_of("the stock fell", "one stock of the index rose", "the stock and the dog")
    first, second = characteristic_words([dogs, stocks])
    assert first[0] == "dog" and second[0] == "stock"
    assert not {"the", "a", "of", "in", "and", "2026"} & {*first, *second}


@pytest.mark.parametrize(
    ("texts", "stop_words"),
    [
        (
            ["I don't think it's hers, but she will be with them by now"],
            "i don t it s hers but she will be with them by",
        ),
        (["Der Hund ist im Garten und er schläft nicht"], "der ist im und er nicht"),
        (["Le chien est dans la maison et il ne dort pas"], "le est dans la et il ne pas"),
        (["El perro está en la casa y no duerme con ellos"], "el está en la y no con ellos"),
    ],
)
def test_stop_words_name_no_cluster(texts: list[str], stop_words: str) -> None:
    found, _ = characteristic_words([texts_of(*texts), texts_of("zebra quagga")])
    assert found and not set(found) & set(stop_words.split())


def test_words_that_are_as_frequent_elsewhere_name_no_cluster_in_any_language() -> None:
    """Finnish "ja" (and) and "on" (is), which no list has."""
    cats = texts_of(*["kissa ja maito ja on kissa"] * 5)
    ships = texts_of(*["laiva ja meri ja on laiva"] * 5)
    assert characteristic_words([cats, ships]) == [["kissa", "maito"], ["laiva", "meri"]]


def test_words_of_one_text_come_from_the_most_central_one() -> None:
    """Texts come in the order of their distance to the center; equal words do not come in the order of the alphabet."""
    first, _ = characteristic_words([texts_of("zinc yarn xylem wood", "apple bread"), texts_of("other things")])
    assert first == ["zinc", "yarn", "xylem"]


def test_pairs_are_connected() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60)
    pairs = generator.integers(60, size=(40, 2))
    for part in np.split(pairs, 4):
        connect(labels, part[:, 0], part[:, 1])
    expected = list(range(60))
    for _ in range(60):
        for first, second in pairs:
            expected[first] = expected[second] = min(expected[first], expected[second])
    assert labels.tolist() == expected


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_bert_folder: Path) -> Index:
    model: LoadedModel = load_model(tiny_bert_folder)
    texts = [
        "the film was good",
        "a bad day",
        "The film was good",
        "the water is hot",
        "the film was good",
        "a bad day",
    ]
    texts += ["people call him good", "some other word"]
    documents = [IndexedText(0, row, text, {"kept": row * 2}) for row, text in enumerate(texts)]
    folder = tmp_path_factory.mktemp("index") / "index"
    drain(add_documents(folder, lambda: documents[:3], lambda name: model))
    drain(
        add_documents(
            folder,
            lambda: [IndexedText(0, n, one.text) for n, one in enumerate(documents[3:])],
            lambda name: model,
            append=True,
        )
    )
    return open_index(folder)


@pytest.mark.parametrize("block", [2, 3, 4096])
def test_duplicates(index: Index, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "BLOCK_SIZE", block)
    result = drain(find_duplicates(index, threshold=1.0))
    groups = [[one.row for one in group.members] for group in result.groups]
    assert groups == [[0, 2, 4], [1, 5]]
    assert (result.rows, result.duplicates, result.pairs) == (8, 3, 4)
    assert [one.score for one in result.groups[0].members] == pytest.approx([1, 1, 1])
    vectors = index.vectors(index.positions()).astype(np.float64)
    similar = np.triu(vectors @ vectors.T >= 0.9 - 1e-6, 1)
    assert drain(find_duplicates(index, threshold=0.9)).pairs == similar.sum()
    headers, rows = result.to_table()
    assert list(headers[:5]) == ["group", "representative", "score", "id", "row"] and len(rows) == 5
    assert "2 groups of texts that say nearly the same" in result.to_text()
    assert "removes 3 of 8 texts" in result.to_text()
    assert "among 8 texts: no two" in result.model_copy(update={"groups": []}).to_text()


def test_the_threshold_is_a_cosine(index: Index) -> None:
    with pytest.raises(InputError, match="threshold is 90"):
        drain(find_duplicates(index, threshold=90))


def test_clusters_of_texts(index: Index) -> None:
    result = drain(find_clusters(index, num_clusters=3, seed=1))
    assert [one.row for one in result.members] == list(range(8))
    sizes = Counter(one.cluster for one in result.members)
    assert [one.size for one in result.clusters] == sorted(sizes.values(), reverse=True)
    assert result.members[0].cluster == result.members[4].cluster and result.members[0].columns == {"kept": 0}
    for one in result.clusters:
        assert set(one.texts) <= {member.text for member in result.members if member.cluster == one.cluster}
        assert len(set(one.texts)) == len(one.texts) > 0
    assert "cluster 0" in result.to_text() and len(result.to_table()[1]) == 8
    assert drain(find_clusters(index)).num_clusters == 2
    with pytest.raises(InputError, match="8 texts cannot form 9 clusters"):
        drain(find_clusters(index, num_clusters=9))
