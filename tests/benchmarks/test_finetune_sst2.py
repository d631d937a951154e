"""The SST-2 fine-tuning benchmark: it learns a simple task reproducibly with one recipe."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import regard
from benchmarks import timing
from benchmarks.finetune_sst2 import dev_accuracies, main
from regard.data.examples import TextExample
from regard.data.readers import ExampleSet
from regard.models import Bert, BertConfig
from regard.text import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


def rows_of(count: int, *, seed: int) -> list[TextExample]:
    """Sentences of 3 to 9 words; those with "good" in them are 1, those with "bad" 0."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label = draw.randrange(2)
        words = draw.choices(["the", "a", "film", "day", "water", "people", "was"], k=draw.randint(2, 8))
        words.insert(draw.randint(0, len(words)), "good" if label else "bad")
        rows.append(TextExample(" ".join(words), label=str(label)))
    return rows


def accuracy(
    model: Path, train: list[TextExample], dev: list[TextExample], *, rate: float = 2e-3, epochs: int = 3
) -> float:
    settings = [f"training.learning_rate={rate}", f"training.num_epochs={epochs}", "training.batch_size=16"]
    settings += [
        "training.optimizer=adamw",
        "training.adversarial_epsilon=0",
    ]  # such a small model learns little otherwise
    [found] = dev_accuracies(
        model, *(ExampleSet(rows, "", "") for rows in (train, dev)), seeds=1, settings=settings, device="cpu"
    )
    return found


def test_learns_a_task_and_evaluates_on_other_sentences(tiny_bert_folder: Path) -> None:
    train, dev = rows_of(300, seed=0), rows_of(100, seed=1)
    wrong = [TextExample(row.text, label=str(1 - int(str(row.label)))) for row in dev[:50]]
    assert accuracy(tiny_bert_folder, train, dev[50:]) > 0.95
    assert accuracy(tiny_bert_folder, train, wrong) < 0.05
    assert accuracy(tiny_bert_folder, train, dev, rate=1e-9, epochs=1) < 0.8


def test_a_model_without_a_pooler_gets_one(tiny_bert_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(tiny_bert_folder)
    config = BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        dropout=0.0,
    )
    regard.save(Bert(config, output_heads=["mlm_head"]), tmp_path, tokenizer=tokenizer)
    assert accuracy(tmp_path, rows_of(300, seed=0), rows_of(50, seed=1), rate=5e-3, epochs=4) > 0.9


def test_prints_one_line_of_json_and_saves_it(
    tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count, seed in (("train", 40, 0), ("dev", 20, 1)):
        lines = "".join(f"{row.text}\t{row.label}\n" for row in rows_of(count, seed=seed))
        (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    monkeypatch.setattr(timing, "RESULTS", tmp_path / "results")
    options = [
        "--seeds",
        "2",
        "--set",
        "training.num_epochs=1",
        "--set",
        "training.learning_rate=2e-3",
        "--device",
        "cpu",
    ]
    main([str(tiny_bert_folder), "--data", str(tmp_path), *options, "--save", "tried"])
    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    saved = json.loads((tmp_path / "results" / "tried.json").read_text())
    assert saved | figures == saved
    assert (figures["train"], figures["dev"]) == (40, 20) and "training.learning_rate=2e-3" in figures["settings"]
    assert len(figures["accuracy"]) == 2 and "tried.json" in printed.err
    assert figures["mean"] == pytest.approx(sum(figures["accuracy"]) / 2, abs=1e-4)
