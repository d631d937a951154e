"""Layer comparison on tiny models: scores, one forward pass per text, and reproducibility."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.examples import TaggedExample, TextExample
from regard.errors import InputError
from regard.inference.embedding.embedder import Embedder
from regard.interpret.probes import layers as module
from regard.interpret.probes.layers import LayersResult
from regard.interpret.probes.probe_heads import ProbeRecipe
from regard.tasks.metrics import entity_scores
from tests.inference.folders import tiny_gpt
from tests.interpret.runs import as_loaded, finish

NAMES = ("water", "sound", "people", "day")
OTHERS = ("the", "a", "is", "they", "love", "make", "then", "see")


def sentences(count: int, *, seed: int, tag_next_word: bool = False) -> list[TaggedExample]:
    """Four words are tagged as things; with `tag_next_word` the word after each of them is tagged instead."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        words, tags = [], []
        while len(words) < 6:
            if chance.random() < 0.3:
                words += [chance.choice(NAMES), chance.choice(OTHERS)]
                tags += ["O", "B-THING"] if tag_next_word else ["B-THING", "O"]
            else:
                words.append(chance.choice(OTHERS))
                tags.append("O")
        ends = np.cumsum([len(word) + 1 for word in words])
        spans = tuple((int(end) - len(word) - 1, int(end) - 1) for word, end in zip(words, ends, strict=True))
        made.append(TaggedExample(" ".join(words), spans, tuple(tags)))
    return made


def texts(count: int, *, seed: int) -> list[TextExample]:
    """Texts labeled by whether they contain a certain word."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        label = chance.choice(["bad", "good"])
        words = chance.choices(OTHERS, k=5)
        words.insert(chance.randrange(5), label)
        found.append(TextExample(" ".join(words), label="1" if label == "good" else "0"))
    return found


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINEAR", ProbeRecipe(batch_size=256, epochs=2, steps=60, learning_rate=5e-2))
    monkeypatch.setattr(module, "BILSTM", ProbeRecipe(batch_size=32, epochs=1, steps=3, learning_rate=1e-2))


def scores(report: LayersResult) -> dict[str, float]:
    return {row.name: row.score for row in report.layers + report.rows}


def score_layers(model: Any, train: Any, dev: Any, *, events: list[Any] | None = None, **options: Any) -> LayersResult:
    return finish(module.score_layers(as_loaded(model), train, dev, **options), events)


def test_scores_of_tagging(tiny_bert_folder: Path) -> None:
    events: list[Any] = []
    report = score_layers(
        tiny_bert_folder,
        sentences(120, seed=0),
        sentences(60, seed=1),
        events=events,
    )
    found = scores(report)
    assert (report.task, report.metric, report.train, report.dev) == ("tag", "f1", 120, 60)
    assert [row.layers for row in report.layers] == [(0,), (1,), (2,)]
    assert found["layer 0 (embeddings)"] > 95  # the word itself determines the tag
    assert found["Learned scalar mix"] > 95
    assert found["layer 0 (embeddings)"] > found["layer 2"] > 30  # two layers of noise later
    assert found["First Layer"] == found["layer 0 (embeddings)"]
    assert found["Last Hidden Layer"] == found["layer 2"]
    assert found["Second-to-Last Hidden Layer"] == found["layer 1"]
    assert [row.deck for row in report.rows] == [91.0, 94.9, 95.5, 95.6, 95.9, 96.1, None]
    assert all(row.low <= row.score <= row.high for row in report.layers + report.rows)
    assert report.layers[2].low < report.layers[2].score < report.layers[2].high
    assert sum(report.mix) == pytest.approx(1)
    assert len(report.mix) == 3
    progress = [(event.stage, event.done, event.total) for event in events]
    assert ("reading", 180, 180) in progress
    assert progress[-1][0] == "training linear heads"
    assert progress[-1][1] == progress[-1][2] >= 60


def test_one_forward_pass_per_text(tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = regard.load(tiny_bert_folder)
    rows: list[int] = []
    original = model.states

    def counted(ids: torch.Tensor, layout: object) -> object:
        rows.append(int((ids == tokenizer.cls_token_id).sum()))  # type: ignore[union-attr]
        return original(ids, layout)

    monkeypatch.setattr(model, "states", counted)
    score_layers((model, tokenizer), sentences(30, seed=0), sentences(20, seed=1), head="bilstm")
    assert sum(rows) == 50
    rows.clear()
    score_layers((model, tokenizer), texts(30, seed=0), texts(20, seed=1), head="bilstm")
    assert sum(rows) == 50


def test_a_bilstm_for_the_table(tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BILSTM", ProbeRecipe(batch_size=32, epochs=1, steps=50, learning_rate=3e-2))
    report = score_layers(
        tiny_bert_folder,
        sentences(150, seed=0, tag_next_word=True),
        sentences(60, seed=1, tag_next_word=True),
        head="bilstm",
    )
    found = scores(report)
    assert {row.head for row in report.layers} == {"linear"}
    assert {row.head for row in report.rows} == {"bilstm"}
    # The embedding of a word has no information about the previous word; a BiLSTM on embeddings does.
    assert found["layer 0 (embeddings)"] < 60 < 90 < found["First Layer"]
    assert sum(report.mix) == pytest.approx(1)


@pytest.mark.parametrize("head", ["linear", "bilstm"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_scores_of_text_classification(tiny_bert_folder: Path, head: str, pooling: str) -> None:
    report = score_layers(
        tiny_bert_folder,
        texts(150, seed=0),
        texts(60, seed=1),
        head=head,  # type: ignore[arg-type]
        pooling=pooling,
    )
    found = scores(report)
    assert (report.task, report.metric) == ("classify", "accuracy")
    assert "the deck" not in report.to_text()
    if pooling == "mean":
        assert found["layer 0 (embeddings)"] > 95
    else:
        assert found["layer 0 (embeddings)"] < 65 < found["layer 2"]  # [CLS] has not yet attended to the text
    assert {row.head for row in report.rows} == {head}


def test_scores_of_a_gpt(tmp_path: Path) -> None:
    folder = tiny_gpt(tmp_path, positions=64)
    report = score_layers(folder, sentences(60, seed=0), sentences(30, seed=1))
    assert len(report.layers) == 3
    assert report.layers[0].score > 70  # its first subwords are letters


def test_a_seed_repeats_the_result(tiny_bert_folder: Path) -> None:
    first, again, other = (
        score_layers(tiny_bert_folder, sentences(20, seed=0), sentences(20, seed=1), head="bilstm", seed=s)
        for s in (1, 1, 2)
    )
    assert (first.layers, first.rows, first.mix) == (again.layers, again.rows, again.mix)
    assert first.mix != other.mix


def test_the_score_is_that_of_the_metrics(tiny_bert_folder: Path) -> None:
    """Heads that always predict O find no entity; labels of dev that are missing in train are reported."""
    train = [
        TaggedExample(one.text, one.words, ("O",) * (len(one.words) - 1) + ("B-X",)) for one in sentences(20, seed=0)
    ]
    dev = sentences(20, seed=1)
    report = score_layers(tiny_bert_folder, train, dev)
    assert report.unseen == ["B-THING"]
    assert {row.score for row in report.layers} == {0.0}
    assert entity_scores([one.tags or () for one in dev], [("O",) * len(one.words) for one in dev])["f1"] == 0


def test_too_long_sentences_are_scored_completely(tiny_bert_folder: Path) -> None:
    """Sentences with more words than the model has positions are tagged in parts and scored as one sentence."""
    short = sentences(60, seed=1)
    length = [len(one.text) + 1 for one in short]
    starts = np.cumsum(length) - length
    words = tuple((a + int(at), b + int(at)) for one, at in zip(short, starts, strict=True) for a, b in one.words)
    tags = tuple(tag for one in short for tag in one.tags or ())
    long = TaggedExample(" ".join(one.text for one in short), words, tags)
    report = score_layers(tiny_bert_folder, sentences(120, seed=0), [long])
    assert (report.dev, report.cut) == (1, 0)
    assert report.parted >= 3
    assert scores(report)["layer 0 (embeddings)"] > 75  # at positions that did not occur in training


def test_invalid_input_is_rejected(tiny_bert_folder: Path) -> None:
    train, dev = sentences(5, seed=0), sentences(5, seed=1)
    cases: list[
        tuple[list[TaggedExample] | list[TextExample], list[TaggedExample] | list[TextExample], dict[str, str], str]
    ] = [
        (train, [], {}, "the dev data has no sentences"),
        ([], [], {}, "the train data has no texts"),
        ([TaggedExample("the film", ((0, 3),), ("O",))], dev, {}, "all of the training data has the label 'O'"),
        ([TaggedExample("the film", ((0, 3),))], dev, {}, "sentence 1 of the train data has no tags"),
        (texts(5, seed=0), [TextExample("good")], {}, "example 1 of the dev data has the label None"),
        (texts(5, seed=0), [TextExample("good", "bad", "1")], {}, "example 1 of the dev data has two texts"),
        ([TextExample("good", label="1")] * 3, texts(5, seed=0), {}, "all of the training data has the label '1'"),
    ]
    for learned, scored, options, message in cases:
        with pytest.raises(InputError, match=message):
            score_layers(tiny_bert_folder, learned, scored, **options)


def test_the_embedder_is_not_changed(tiny_bert_folder: Path) -> None:
    loaded = regard.load(tiny_bert_folder)
    before = Embedder(loaded, device="cpu").transform(["the film was good"])
    score_layers(loaded, texts(20, seed=0), texts(10, seed=1))
    np.testing.assert_array_equal(before, Embedder(loaded, device="cpu").transform(["the film was good"]))
    for options, message in (({"head": "crf"}, "head is 'crf'"), ({"pooling": "max"}, "pooling is 'max'")):
        with pytest.raises(InputError, match=message):
            regard.compare_layers(train=[("good", "1"), ("bad", "0")], task="classify", **options)
