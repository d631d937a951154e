"""Fine-tuning as a benchmark: it learns what can be learned, by one recipe, the same way twice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from benchmarks import finetune_sst2, race
from benchmarks.finetune_sst2 import Classifier, Encoded, finetune, main, read_rows
from regard.errors import InputError
from regard.models import Bert, BertConfig, Gpt, GptConfig
from regard.nn import Packed, Padded
from regard.text import Tokenizer


def rows_of(count: int, *, seed: int) -> list[tuple[str, int]]:
    """Sentences of 3 to 9 words; those with "good" in them are 1, those with "bad" 0."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label = draw.randrange(2)
        words = draw.choices(["the", "a", "film", "day", "water", "people", "was"], k=draw.randint(2, 8))
        words.insert(draw.randint(0, len(words)), "good" if label else "bad")
        rows.append((" ".join(words), label))
    return rows


def recipe(**changes: Any) -> dict[str, Any]:
    return {"seed": 0, "epochs": 3, "rate": 2e-3, "batch": 16, "device": "cpu"} | changes


@pytest.fixture
def classifier(tiny_bert_folder: Path) -> Classifier:
    model, _ = regard.load(tiny_bert_folder)
    assert isinstance(model, Bert)
    return Classifier(model)


@pytest.fixture
def encoded(tiny_bert_folder: Path) -> Encoded:
    return Encoded(rows_of(50, seed=0), Tokenizer.open(tiny_bert_folder), 128)


def test_learns_a_task_and_judges_it_on_other_sentences(tiny_bert_folder: Path) -> None:
    train, dev = rows_of(300, seed=0), rows_of(100, seed=1)
    wrong = [(text, 1 - label) for text, label in dev[:50]]
    assert finetune(tiny_bert_folder, train, dev[50:], **recipe()) > 0.95
    assert finetune(tiny_bert_folder, train, wrong, **recipe()) < 0.05
    assert finetune(tiny_bert_folder, train, dev, **recipe(rate=0.0, epochs=1)) < 0.8


def test_a_seed_stands_for_one_result(tiny_bert_folder: Path) -> None:
    train, dev = rows_of(64, seed=0), rows_of(200, seed=1)
    found = [
        finetune(tiny_bert_folder, train, dev, **recipe(seed=seed, rate=5e-4, epochs=1)) for seed in (0, 1, 2, 0, 1, 2)
    ]
    assert found[:3] == found[3:]
    assert len(set(found)) > 1


def test_every_step_has_its_rate_and_a_bounded_gradient(
    tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, norms = [], []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        decaying, other = optimizer.param_groups
        assert (decaying["weight_decay"], other["weight_decay"]) == (0.01, 0.0) and decaying["lr"] == other["lr"]
        gradients = [p.grad for group in (decaying, other) for p in group["params"] if p.grad is not None]
        rates.append(decaying["lr"])
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    def watched(*arguments: Any, **options: Any) -> list[torch.optim.Optimizer]:
        optimizers = build(*arguments, **options)
        optimizers[0].register_step_pre_hook(note)
        return optimizers

    build = finetune_sst2.build
    monkeypatch.setattr(finetune_sst2, "build", watched)
    finetune(tiny_bert_folder, rows_of(33, seed=0), rows_of(4, seed=1), **recipe(epochs=10, batch=16, rate=1e-3))
    assert len(rates) == 30  # 33 sentences are 3 batches
    assert rates[0] < 1e-4 and rates.index(max(rates)) == 3 and max(rates) == 1e-3
    assert rates[3:] == sorted(rates[3:], reverse=True) and rates[-1] == pytest.approx(1e-3 / 27)
    assert max(norms) == pytest.approx(1.0, abs=1e-3)


def test_dropout_is_what_the_model_was_pretrained_with() -> None:
    for dropout in (0.0, 0.1):
        config = BertConfig(vocabulary=30, width=8, depth=1, heads=2, ffn=8, dropout=dropout)
        classifier = Classifier(Bert(config))
        assert classifier.dropout.p == classifier.encoder.embedding.dropout.p == dropout


def test_logits_come_from_the_pooled_first_token(classifier: Classifier, encoded: Encoded) -> None:
    classifier.eval()
    model = classifier.encoder
    assert model.pooler is not None and classifier.pooler is model.pooler
    ids = torch.tensor([encoded.ids[7]])
    expected = classifier.output(model.pooler(model(ids), Padded()))
    (batch, _), *_ = encoded.batches([3, 7, 9], 3, torch.device("cpu"))
    place = sorted([3, 7, 9], key=lambda i: len(encoded.ids[i])).index(7)
    torch.testing.assert_close(classifier(batch)[place : place + 1], expected)


def test_is_judged_without_dropout(classifier: Classifier, encoded: Encoded) -> None:
    classifier.dropout.p = 0.9
    torch.nn.init.normal_(classifier.output.weight)
    classifier.eval()
    singles = encoded.batches(range(50), 1, torch.device("cpu"))
    encoded.labels = [int(classifier(batch).argmax()) for batch, _ in singles]
    classifier.train()
    assert finetune_sst2._accuracy(classifier, encoded) == 1.0


def test_batches_hold_every_row_once_and_its_label(encoded: Encoded) -> None:
    order = torch.randperm(50).tolist()
    batches = encoded.batches(order, 16, torch.device("cpu"))
    found = []
    for batch, labels in batches:
        assert isinstance(batch.layout, Packed) and list(batch.layout.lengths) == sorted(batch.layout.lengths)
        texts = [part.tolist() for part in batch.ids.split(list(batch.layout.lengths))]
        found.append(sorted(zip(texts, labels.tolist(), strict=True)))
    parts = [order[start : start + 16] for start in range(0, 50, 16)]
    assert found == [sorted((encoded.ids[i], encoded.labels[i]) for i in part) for part in parts]


def test_a_model_without_a_pooler_gets_one(tiny_bert_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(tiny_bert_folder)
    config = BertConfig(vocabulary=tokenizer.size, width=16, depth=1, heads=2, ffn=16, positions=32, dropout=0.0)
    regard.save(Bert(config, heads=["masked"]), tmp_path, tokenizer=tokenizer)
    train, dev = rows_of(300, seed=0), rows_of(50, seed=1)
    assert finetune(tmp_path, train, dev, **recipe(rate=5e-3, epochs=4)) > 0.9


def test_other_families_are_refused(tiny_bert_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(tiny_bert_folder)
    config = GptConfig(vocabulary=tokenizer.size, width=16, depth=1, heads=2, positions=32)
    regard.save(Gpt(config), tmp_path, tokenizer=tokenizer)
    with pytest.raises(InputError, match="expected a BERT with its tokenizer, got Gpt"):
        finetune(tmp_path, rows_of(4, seed=0), rows_of(4, seed=1), **recipe())


def test_rows_are_sentence_and_label(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("a good film\t1\nno\ttab here\t0", encoding="utf-8")
    assert read_rows(path) == [("a good film", 1), ("no\ttab here", 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a film\t1\na film 1\n", "line 2: expected a sentence, a tab and 0 or 1, got 'a film 1'"),
        ("sentence\tlabel\n", "line 1: expected a sentence"),
        (" \t1\n", "line 1: expected a sentence"),
        ("", "is empty"),
    ],
)
def test_other_rows_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_rows(path)


def test_the_data_set_is_whole(shared_data: Callable[[str], Path]) -> None:
    counts = {name: len(read_rows(shared_data(f"sst2/{name}.tsv"))) for name in ("train", "dev")}
    assert counts == {"train": 6920, "dev": 872}


def test_prints_one_line_of_json_and_keeps_it(
    tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count, seed in (("train", 40, 0), ("dev", 20, 1)):
        lines = "".join(f"{text}\t{label}\n" for text, label in rows_of(count, seed=seed))
        (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    monkeypatch.setattr(race, "RESULTS", tmp_path / "results")
    options = ["--seeds", "3", "5", "--epochs", "1", "--rate", "2e-3", "--batch", "8", "--device", "cpu"]
    main([str(tiny_bert_folder), "--data", str(tmp_path), *options, "--keep", "tried"])
    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    kept = json.loads((tmp_path / "results" / "tried.json").read_text())
    assert kept | figures == kept
    assert (figures["train"], figures["dev"], figures["device"], figures["rate"]) == (40, 20, "cpu", 2e-3)
    assert list(figures["accuracy"]) == ["3", "5"] and "seed 5" in printed.err
    assert figures["mean"] == pytest.approx(sum(figures["accuracy"].values()) / 2, abs=1e-4)
