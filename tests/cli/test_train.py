"""`regard train`, `evaluate` and `predict` on the command line."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.cli.app import run, verb_commands

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]
QUICK = tuple(
    [
        "--set",
        "training.baseline=false",
        "--set",
        "training.num_epochs=2",
        "--set",
        "training.batch_size=4",
        "--device",
        "cpu",
    ]
)
REVIEWS = [("the film is good", "pos"), ("it was dull", "neg"), ("we love it", "pos"), ("a bad day", "neg")] * 6


@pytest.fixture
def call(one_thread: None) -> Call:
    registers = verb_commands()
    return lambda *arguments: run([str(argument) for argument in arguments], registers=registers)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reviews") / "reviews.tsv"
    path.write_text("".join(f"{text}\t{label}\n" for text, label in REVIEWS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tuned(reviews: Path, tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fine-tuned classifier."""
    output = tmp_path_factory.mktemp("tuned") / "run"
    arguments = [
        "train",
        "classify",
        "--train",
        reviews,
        "--dev",
        reviews,
        "-o",
        output,
        "-m",
        tiny_bert_folder,
        *QUICK,
    ]
    assert run(list(map(str, arguments)), registers=verb_commands()) == 0
    return output


def test_train_reports_its_data_and_scores(
    call: Call, reviews: Path, tiny_bert_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    options = ["--train", reviews, "--dev", reviews, "-m", tiny_bert_folder, *QUICK]
    assert call("train", "classify", *options, "-o", tmp_path / "run", "--seeds", 2, "--json") == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    assert document["task"] == "classify" and [one["seed"] for one in document["seeds"]] == [0, 1]
    assert document["mean"]["accuracy"] == sum(one["scores"]["accuracy"] for one in document["seeds"]) / 2
    assert f"train: 24 examples of {reviews} (tab-separated, no header, text = column 0, label = column 1)" in error
    assert re.search(r"seed 1  epoch 2  \d+ of 24 correct  train loss", error)


def test_ulmfit_unfreezes_layers_gradually(
    call: Call, reviews: Path, tiny_bert_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    options = ["--train", reviews, "--dev", reviews, "-m", tiny_bert_folder, *QUICK, "--ulmfit"]
    assert call("train", "classify", *options, "-o", tmp_path / "run", "--json") == 0
    out, error = capsys.readouterr()
    training = json.loads(out)["settings"]["training"]
    assert training["layerwise_lr_decay"] == pytest.approx(1 / 2.6, abs=1e-4) and training["unfreeze"] == 0.5
    # 12 steps; of two layers and embeddings one begins every second step.
    assert "of 12: task head at 1, layer 2 at 3, layer 1 at 5, embeddings at 7\n" in error
    assert "rates: task head 0.0006, layer 2 0.00023, layer 1 8.9e-05, embeddings 3.4e-05\n" in error
    assert call("train", "classify", *options, "-o", tmp_path / "other", "--frozen") == 2
    assert "--ulmfit trains all layers in the end, --frozen none of them" in capsys.readouterr().err


def test_evaluate(call: Call, tuned: Path, reviews: Path, capsys: Captured) -> None:
    assert call("evaluate", tuned, "--data", reviews, "--device", "cpu", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["task"], document["n"]) == ("classify", 24)
    assert document["metrics"].keys() >= {"accuracy", "f1", "mcc"} and 0 <= document["metrics"]["accuracy"] <= 100
    assert call("evaluate", tuned, "--data", reviews, "--device", "cpu") == 0
    assert f"{document['metrics']['accuracy']:.1f}% of 24 examples are classified correctly" in capsys.readouterr().out


def test_predict_reads_a_text_a_file_and_standard_input(
    call: Call, tuned: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["the film is good", "no \U0001f600 <b>day</b>"]
    plain, lines = tmp_path / "plain.txt", tmp_path / "lines.jsonl"
    plain.write_text("\n".join(texts) + "\n", encoding="utf-8")
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    found = []
    for source in (plain, lines, "-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(plain.read_bytes()), encoding="utf-8"))
        assert call("predict", tuned, source, "--device", "cpu") == 0
        found.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert found[0] == found[1]
    for one, piped in zip(found[0], found[2], strict=True):  # batches of one, so rounding differs
        assert one["label"] == piped["label"]
        assert one["probabilities"] == pytest.approx(piped["probabilities"], abs=1e-5)
    assert [one["text"] for one in found[0]] == texts
    for one in found[0]:
        assert one["label"] in ("neg", "pos") and abs(sum(one["probabilities"].values()) - 1) < 1e-9
    table = tmp_path / "table"
    table.write_text("".join(f"pos\t{text}\n" for text in texts), encoding="utf-8")
    assert call("predict", tuned, table, "--columns", "1", "--device", "cpu") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found[0]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.read_bytes()), encoding="utf-8"))
    assert call("predict", tuned, "-", "--device", "cpu") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found[2]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes()), encoding="utf-8"))
    assert call("predict", tuned, "-", "--device", "cpu") == 0
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == found[2] and "text = column 1" in printed.err
    assert call("predict", tuned, texts[0], "--device", "cpu") == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["probabilities"] == pytest.approx(found[0][0]["probabilities"], abs=1e-6)


def test_entities_have_character_offsets(call: Call, tiny_bert_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    sentences = tmp_path / "train.conll"
    sentences.write_text(
        "the O\nfilm B-THING\nwas O\n, O\ngood O\n! O\n\nmy O\nword B-THING\n, O\nthe O\nfilm B-THING\n! O\n\n" * 8,
        encoding="utf-8",
    )
    options = ["--train", sentences, "--dev", sentences, "-m", tiny_bert_folder, *QUICK]
    options += ["--set", "training.num_epochs=30", "--set", "training.learning_rate=5e-3"]
    assert call("train", "tag", *options, "-o", tmp_path / "run") == 0
    capsys.readouterr()
    assert call("predict", tmp_path / "run", "my  word, the film!", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["start"], one["end"], one["text"], one["label"]) for one in found["entities"]] == [
        (4, 8, "word", "THING"),
        (14, 18, "film", "THING"),
    ]


def test_answers_are_spans_of_their_context(
    call: Call, tiny_bert_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    context = "the film was funny and the day was so long."
    questions = [
        {"id": str(i), "question": "how was the film?", "answers": [{"text": "funny", "answer_start": 13}]}
        for i in range(8)
    ]
    data = {"version": "1.1", "data": [{"title": "x", "paragraphs": [{"context": context, "qas": questions}]}]}
    squad, questions_file = tmp_path / "squad.json", tmp_path / "asked.jsonl"
    squad.write_text(json.dumps(data), encoding="utf-8")
    questions_file.write_text(
        json.dumps({"question": "how was the film?", "context": context}) + "\n", encoding="utf-8"
    )
    options = ["--train", squad, "--dev", squad, "-m", tiny_bert_folder, *QUICK, "--set", "training.num_epochs=20"]
    assert call("train", "answer", *options, "-o", tmp_path / "run", "--set", "training.learning_rate=3e-3") == 0
    assert "exact_match         100.00" in capsys.readouterr().out
    assert call("predict", tmp_path / "run", questions_file, "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["start"], found["end"]) == ("funny", 13, 18)
    assert [one["probability"] for one in found["nbest"]] == sorted(
        (o["probability"] for o in found["nbest"]), reverse=True
    )
    # No answer reaches the first threshold, and every answer reaches the second.
    for threshold, answer in (("1e9", ""), ("-1e9", "funny")):
        assert call("predict", tmp_path / "run", questions_file, "--threshold", threshold, "--device", "cpu") == 0
        assert json.loads(capsys.readouterr().out)["answer"] == answer
    assert call("evaluate", tmp_path / "run", "--data", squad, "--threshold", "1e9", "--device", "cpu", "--json") == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["exact_match"] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("the film\tpos\nthe day\tpos\n", "at least two classes"),
        ("the film\tpos\nthe day\n", "line 2"),
    ],
)
def test_invalid_data_is_rejected_before_any_work(
    content: str, message: str, call: Call, tiny_bert_folder: Path, reviews: Path, tmp_path: Path, capsys: Captured
) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text(content, encoding="utf-8")
    options = ["--train", bad, "--dev", reviews, "-m", tiny_bert_folder, "-o", tmp_path / "run", *QUICK]
    assert call("train", "classify", *options) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_other_invalid_input(
    call: Call, tuned: Path, reviews: Path, tiny_bert_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert call("evaluate", tiny_bert_folder, "--data", reviews) == 2
    assert "config.json names no class for a task" in capsys.readouterr().err
    assert call("evaluate", tuned, "--data", reviews, "--threshold", "1") == 2
    assert "only models that answer questions have a threshold" in capsys.readouterr().err
    assert call("predict", tuned, "nowhere.tsv") == 2
    assert "nowhere.tsv: no such file" in capsys.readouterr().err
    assert call("evaluate", "./nowhere", "--data", reviews) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err
    assert call("predict", tuned, tmp_path.parent) == 2  # a folder is read as pictures
    assert "internal" not in capsys.readouterr().err
    options = ["--train", reviews, "-m", tiny_bert_folder, "-o", tmp_path / "run"]
    assert call("train", "classify", *options, "--set", "training.epoch=3") == 2
    assert "unknown key 'epoch' in [training]; did you mean 'num_epochs'" in capsys.readouterr().err
    assert call("train", "tag", "--delimiter", ",", *options) == 2
    assert "tag reads columns separated by blanks or tabs" in capsys.readouterr().err


def test_the_no_answer_threshold_is_chosen_on_dev_and_saved(
    call: Call, tiny_bert_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    def paragraph(*words: str) -> dict[str, object]:
        context = " ".join(words)
        answers = [{"text": "funny", "answer_start": context.index("funny")}] if "funny" in words else []
        question = {"id": context, "question": "how was it?", "answers": answers, "is_impossible": not answers}
        return {"context": context, "qas": [question]}

    filling = ["film", "day", "word", "side", "water"]
    some = [
        paragraph("the", word, "was", end, "and", more)
        for word in filling
        for end in ("funny", "long")
        for more in filling
    ]
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": some}]}), encoding="utf-8")
    options = [
        "--train",
        squad,
        "--dev",
        squad,
        "-m",
        tiny_bert_folder,
        *QUICK,
        "--set",
        "training.learning_rate=1e-3",
        "--json",
    ]
    assert call("train", "answer", *options, "-o", tmp_path / "run") == 0
    out, error = capsys.readouterr()
    reported = json.loads(out)["mean"]
    threshold = json.loads((tmp_path / "run" / "task.json").read_text())["threshold"]
    assert threshold != 0.0 and f"best on dev: threshold {threshold:.4g}" in error

    def scored(*more: str) -> float:
        assert call("evaluate", tmp_path / "run", "--data", squad, "--device", "cpu", "--json", *more) == 0
        return float(json.loads(capsys.readouterr().out)["metrics"]["f1"])

    assert scored() == pytest.approx(reported["f1"])
    others = [scored("--threshold", str(threshold + step)) for step in (-99, -1, -0.1, -0.01, 0.01, 0.1, 1, 99)]
    assert max(others) <= reported["f1"] and min(others) < reported["f1"]


def test_predictions_use_the_precision_of_the_run(
    call: Call, reviews: Path, tiny_bert_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    options = ["--train", reviews, "--dev", reviews, "-m", tiny_bert_folder, *QUICK]
    found = {}
    for precision in ("fp32", "bf16"):
        run = tmp_path / precision
        assert call("train", "classify", *options, "-o", run, "--set", f"run.precision={precision}") == 0
        document = json.loads((run / "task.json").read_text())
        assert document["precision"] == precision
        (run / "checksums.json").unlink()  # the checksum of the file that is changed here
        for requested in ("fp32", "bf16"):
            (run / "task.json").write_text(json.dumps({**document, "precision": requested}), encoding="utf-8")
            capsys.readouterr()
            assert call("predict", run, "the film is good", "--device", "cpu") == 0
            out, error = capsys.readouterr()
            found[precision, requested] = json.loads(out)["probabilities"]["pos"]
        assert "computing on cpu in bfloat16, as run.precision was bf16 in training" in error
        assert found[precision, "fp32"] != found[precision, "bf16"]
        assert found[precision, "fp32"] == pytest.approx(found[precision, "bf16"], abs=0.02)
    (run / "task.json").write_text(json.dumps({**document, "precision": "fp16"}), encoding="utf-8")
    assert call("predict", run, "the film is good", "--device", "cpu") == 2
    assert "task.json: unknown precision 'fp16'; did you mean 'bf16'" in capsys.readouterr().err
