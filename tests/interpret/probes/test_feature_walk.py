"""Feature walk of the lecture: each stage against the Embedder, the tokenizer and the values on the slides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.examples import TextExample
from regard.errors import InputError
from regard.inference.embedding.embedder import Embedder
from regard.interpret.probes import feature_walk as module
from regard.interpret.probes.feature_walk import FeatureWalk, feature_walk, score_regression
from regard.models import Bert, BertConfig
from regard.nn.masks import Padded
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.runs import as_loaded, finish

EXAMPLES = [
    TextExample(f"the {word} film{' was so long and they said no' * (number % 3)}", label=str(int(word == "good")))
    for number in range(12)
    for word in ("good", "bad")
]
TEXTS = [example.text for example in EXAMPLES]
LABELS = [str(example.label) for example in EXAMPLES]


def walk(model: Any, examples: list[TextExample], **options: Any) -> FeatureWalk:
    return finish(feature_walk(as_loaded(model), examples, **options))


def test_every_stage(tiny_bert_folder: Path) -> None:
    _, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    events: list[Any] = []
    found = finish(feature_walk(as_loaded(tiny_bert_folder), EXAMPLES), events)
    encoded = [tokenizer.encode(text) for text in TEXTS]
    longest = max(map(len, encoded))
    assert found.texts == TEXTS[:5]
    assert found.tokens == [one.tokens for one in encoded[:5]]
    assert found.ids == [one.ids for one in encoded[:5]]
    assert found.tokens[0] == ["[CLS]", "the", "good", "film", "[SEP]"]
    assert found.padded == [one.ids + [tokenizer.pad_token_id] * (longest - len(one)) for one in encoded[:5]]
    assert [sum(row) for row in found.mask] == [len(one) for one in encoded[:5]]
    assert all(len(row) == longest for row in found.mask)
    assert (found.matrix, found.hidden, found.slice) == ((24, longest), (24, longest, 32), (24, 32))
    assert found.padding == pytest.approx(100 * (1 - sum(map(len, encoded)) / (24 * longest)))
    expected = Embedder(tiny_bert_folder, pooling="cls", device="cpu").transform(TEXTS)
    np.testing.assert_allclose(found.features, expected[:5], atol=1e-5)
    assert found.labels == LABELS[:5]
    assert found.counts == {"1": 12, "0": 12}
    assert found.masked == score_regression(expected, LABELS)
    assert found.unmasked is None
    assert (events[-1].done, events[-1].total) == (24, 24)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("layer", ["-1", "concat(-2:)"])
def test_without_a_mask_as_on_the_slides(
    pooling: str, layer: str, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One padded tensor with all texts and no mask equals the batches of the walk."""
    monkeypatch.setattr(module, "DEFAULT_TOKENS", 70)  # several batches
    model, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    ids = [tokenizer.encode(text).ids for text in TEXTS]
    longest = max(map(len, ids))
    padded = torch.tensor([one + [0] * (longest - len(one)) for one in ids])
    with torch.no_grad():
        states = list(model.states(padded, Padded()))
    hidden = states[-1] if layer == "-1" else torch.cat(states[-2:], dim=-1)
    vectors = (hidden[:, 0] if pooling == "cls" else hidden.mean(1)).numpy()
    found = walk(tiny_bert_folder, EXAMPLES, pooling=pooling, layer=layer, as_in_deck=True)
    assert found.hidden == tuple(hidden.shape)
    right = Embedder(tiny_bert_folder, pooling=pooling, layers=layer, device="cpu").transform(TEXTS)
    np.testing.assert_allclose(found.features, right[:5], atol=1e-5)
    assert found.masked == score_regression(right, LABELS)
    assert found.unmasked is not None
    assert found.unmasked.accuracy == pytest.approx(score_regression(vectors, LABELS).accuracy)
    assert found.unmasked.mean == pytest.approx(score_regression(vectors, LABELS).mean)
    cosine = (right * vectors).sum(1) / np.linalg.norm(right, axis=1) / np.linalg.norm(vectors, axis=1)
    assert found.similarity == pytest.approx(100 * cosine.mean(), abs=1e-3)
    assert found.similarity < 99.9


def test_texts_of_one_length_need_no_mask(tiny_bert_folder: Path) -> None:
    same = [TextExample(f"the {word} film", label=word) for word in ("good", "bad") * 8]
    found = walk(tiny_bert_folder, same, as_in_deck=True)
    assert found.padding == 0
    assert found.similarity == pytest.approx(100, abs=1e-3)
    assert found.masked == found.unmasked


def test_ids_and_shapes_of_the_slides(shared_data: Callable[[str], Path]) -> None:
    """The first 2,000 sentences of SST-2 with BERT's vocabulary have the ids of the slides.

    The slides give 66 tokens for the longest sentence; it has 59 (and 67 among all 6,920).
    """
    vocabulary = shared_data("vocab-bert-base-uncased")
    lines = shared_data("sst2/train.tsv").read_text(encoding="utf-8").splitlines()[:2000]
    examples = [TextExample(text, label=label) for text, label in (line.split("\t") for line in lines)]
    model = Bert(
        BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8), output_heads=()
    )
    found = walk((model, Tokenizer.open(vocabulary)), examples)
    assert [one[:7] for one in found.ids] == [
        [101, 1037, 18385, 1010, 6057, 1998, 2633],
        [101, 4593, 2128, 27241, 23931, 2013, 1996],
        [101, 2027, 3653, 23545, 2037, 4378, 24185],
        [101, 2023, 2003, 1037, 17453, 14726, 19379],
        [101, 5655, 6262, 1005, 1055, 12075, 2571],
    ]
    assert found.matrix == (2000, 59)
    assert found.hidden == (2000, 59, 8)
    assert (found.masked.train, found.masked.test) == (1500, 500)
    assert found.labels == ["1", "0", "0", "1", "1"]


def test_gpt_and_long_texts(tmp_path: Path) -> None:
    folder = tiny_gpt(tmp_path, positions=16)
    found = walk(folder, EXAMPLES, pooling="mean", as_in_deck=True)
    assert found.cut > 0
    assert found.matrix == (24, 16)


def test_invalid_input_is_rejected(tiny_bert_folder: Path) -> None:
    cases: list[tuple[list[TextExample], dict[str, str], str]] = [
        ([], {}, "all 0 examples have the same label"),
        ([TextExample("good", label="1")] * 9, {}, "all 9 examples have the same label"),
        ([*EXAMPLES, TextExample("so so", label="2")], {}, "only 1 of 25 examples have the label '2'; 5 folds need 5"),
        ([*EXAMPLES, TextExample("so so")], {}, "example 25 has the label None"),
        ([TextExample("good", "bad", "1")], {}, "example 1 has two texts"),
        (EXAMPLES, {"layer": "7"}, "layer 7 does not exist"),
    ]
    for examples, options, message in cases:
        with pytest.raises(InputError, match=message):
            walk(tiny_bert_folder, examples, **options)
    with pytest.raises(InputError, match="pooling is 'max'"):
        regard.features(data=[("good", "1"), ("bad", "0")], pooling="max")


def test_more_texts_than_the_limit_are_sampled(tiny_bert_folder: Path) -> None:
    found = walk(tiny_bert_folder, EXAMPLES, limit=20, seed=1, as_in_deck=True)
    (note,) = found.notes
    assert all(part in note for part in ("20 of 24 texts", "seed 1", "4 are left out"))
    assert found.matrix[0] == len(found.examples) == 20
    page = found.page_data()
    assert (page["view"], page["model"], page["notes"]) == ("features", str(tiny_bert_folder), found.notes)


def test_view_requires_the_comparison(tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="as-in-deck"):
        walk(tiny_bert_folder, EXAMPLES).page_data()


def test_noise_and_signal() -> None:
    rng = np.random.default_rng(0)
    labels = ["spam" if rng.random() < 0.3 else "ham" for _ in range(400)]
    noise = rng.normal(size=(400, 8)).astype(np.float32)
    signal = noise.copy()
    signal[:, 3] += [6 if label == "spam" else -6 for label in labels]
    found, none = score_regression(signal, labels), score_regression(noise, labels)
    assert (found.train, found.test) == (300, 100)
    assert found.accuracy == found.mean == 100
    assert found.deviation == 0
    assert found.guess == round(100 * labels.count("ham") / 400)  # chance level with the label proportions
    assert none.accuracy < 80
    assert none.mean == pytest.approx(none.guess, abs=6)


def test_the_folds_are_those_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    rng = np.random.default_rng(1)
    labels = rng.choice(["a", "b", "c"], size=90).tolist()
    vectors = rng.normal(size=(90, 4)).astype(np.float32)
    vectors[:, 0] += [float(label == "a") for label in labels]
    expected = 100 * cross_val_score(LogisticRegression(max_iter=1000), vectors, labels, cv=5)
    found = score_regression(vectors, labels, seed=3)
    assert found.mean == pytest.approx(expected.mean())
    assert found.deviation == pytest.approx(expected.std())
    assert score_regression(vectors, labels, seed=3) == found
    assert score_regression(vectors, labels, seed=4).accuracy != found.accuracy


def test_missing_scikit_learn_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match="pip install scikit-learn"):
        module._require_sklearn()
