"""`regard train translate` and `regard translate` on the command line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu

from regard.cli.app import run, verb_commands
from regard.cli.commands import repeat_options
from regard.training.events import EvaluationProgress

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]
WORDS = {"the": "der", "dog": "Hund", "cat": "Katze", "sees": "sieht", "eats": "isst", "a": "ein", "red": "rote"}
PAIRS = [
    (f"{first} {what} {does}", f"{WORDS[first]} {WORDS[what]} {WORDS[does]}")
    for first in ("the", "a", "red")
    for what in ("dog", "cat")
    for does in ("sees", "eats")
] * 3
QUICK = [
    *(
        "--set",
        "vocabulary.vocab_size=280",
        "--set",
        "model.hidden_size=16",
        "--set",
        "model.num_hidden_layers=1",
        "--set",
        "model.num_attention_heads=2",
    ),
    *(
        "--set",
        "model.intermediate_size=32",
        "--set",
        "model.embedding_size=8",
        "--set",
        "training.num_epochs=2",
        "--device",
        "cpu",
    ),
    *("--set", "training.tokens_per_batch=150", "--set", "training.warmup_steps=4"),
]


@pytest.fixture
def call(one_thread: None) -> Call:
    return lambda *arguments: run([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for side, name in enumerate(("en", "de")):
        (folder / f"train.{name}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    (folder / "train.tsv").write_text("".join(f"{de}\t{en}\n" for en, de in PAIRS), encoding="utf-8")
    (folder / "input.txt").write_text("the dog sees\n\na cat eats\n", encoding="utf-8")
    (folder / "right.txt").write_text("der Hund sieht\n\nein Katze isst\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    both = ["--train", files / "train.en", files / "train.de", "--dev", files / "train.en", files / "train.de"]
    for name, more in {"transformer": [], "lstm": ["--model", "lstm", "--score", "none"]}.items():
        arguments = ["train", "translate", *both, "-o", folder / name, *more, *QUICK]
        assert run(list(map(str, arguments)), registers=verb_commands()) == 0
    return {"transformer": folder / "transformer", "lstm": folder / "lstm"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--dev C D --train A B -o X --train=E", "--dev C --dev D --train A --train B -o X --train=E"),
        ("--train A -o B --dev C --resume", "--train A -o B --dev C --resume"),
        ("--train A --dev - -", "--train A --dev - --dev -"),
        ("--train A B C", "--train A --train B --train C"),
    ],
)
def test_an_option_with_two_files(given: str, expected: str) -> None:
    assert repeat_options(given.split(), {"--train", "--dev"}) == expected.split()


def test_progress_of_the_evaluation_is_shown() -> None:
    event = EvaluationProgress(epoch=2, done=1200, total=2000)
    assert event.transient and all(part in event.line() for part in ("epoch 2 ", "1,200 of 2,000 examples"))


def test_train_reports_its_data_and_scores(call: Call, files: Path, tmp_path: Path, capsys: Captured) -> None:
    table = ["--train", files / "train.tsv", "--dev", files / "train.tsv", "--columns", "1,0"]
    more = ["--model", "lstm", "--score", "dot", "--recipe", "deck", "--json"]
    assert call("train", "translate", *table, "-o", tmp_path / "run", *more, *QUICK) == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    assert document["task"] == "translate" and document["model"] == "lstm"
    assert {document["settings"]["model"][key] for key in ("score", "recipe")} == {"dot", "deck"}
    assert len(document["outcome"]["history"]) == 2 and "case:lc" in document["signature"]["bleu_lowercase"]
    assert "train: 36 pairs of" in error and "source = column 1, target = column 0" in error
    assert "epoch 2  bleu" in error and "average of epochs 1 to 2  bleu" in error and "tokens/s" in error
    assert call("train", "translate", *table, "-o", tmp_path / "run", *more[:-1], *QUICK, "--resume") == 0
    assert "dev BLEU, lower case" in capsys.readouterr().out


def test_a_single_table_file(call: Call, tmp_path: Path, capsys: Captured) -> None:
    table = tmp_path / "pairs.tsv"
    rows = [f"{what} {number}\t{WORDS[what]} {number}\n" for what in ("dog", "cat", "sees") for number in range(20)]
    table.write_text("".join(rows), encoding="utf-8")
    options = ["--train", table, "-o", tmp_path / "run", "--hold-out", 5, *QUICK, "--set", "vocabulary.vocab_size=262"]
    assert call("train", "translate", *options) == 0
    out, error = capsys.readouterr()
    assert "train: 50 pairs" in error and "dev: 5 pairs" in error and "test: 5 pairs" in error
    assert "5 pairs set aside" in out
    assert (tmp_path / "run" / "test.tsv").read_text(encoding="utf-8").count("\n") == 5


def test_invalid_pairs(call: Call, files: Path, tmp_path: Path, capsys: Captured) -> None:
    short = tmp_path / "short.de"
    short.write_text("der Hund\n", encoding="utf-8")
    dev = ["--dev", files / "train.en", files / "train.de", "-o", tmp_path / "run"]
    assert call("train", "translate", "--train", files / "train.en", short, *dev) == 2
    assert "train.en has 36 lines and" in capsys.readouterr().err
    assert call("train", "translate", "--train", files / "train.en", files / "train.de", "x", *dev) == 2
    assert "3 files of pairs; expected SOURCE TARGET, or one table" in capsys.readouterr().err
    assert call("train", "translate", "--train", files / "train.en", short, *dev, "--columns", "1,0") == 2
    assert "--columns and --delimiter are for a table" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", [["--score", "dot"], ["--recipe", "deck"]])
def test_lstm_options_require_an_lstm(
    option: list[str], call: Call, files: Path, tmp_path: Path, capsys: Captured
) -> None:
    arguments = ["train", "translate", "--train", files / "train.tsv", "-o", tmp_path / "run", *option]
    config = tmp_path / "settings.toml"
    config.write_text('[model]\nfamily = "transformer"\n', encoding="utf-8")
    for more in ([], ["--model", "transformer"], ["--set", "model.family=transformer"], ["--config", config]):
        assert call(*arguments, *more) == 2
        error = capsys.readouterr().err
        assert f"{' '.join(option)} is for an LSTM, and the model to train is a transformer; add --model lstm" in error
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["file", "setting"])
def test_lstm_options_work_with_an_lstm_from_the_settings(
    kind: str, call: Call, files: Path, tmp_path: Path, capsys: Captured
) -> None:
    config = tmp_path / "settings.toml"
    config.write_text('[model]\nfamily = "lstm"\n', encoding="utf-8")
    more = ["--config", config] if kind == "file" else ["--set", "model.family=lstm"]
    table = ["--train", files / "nothing.tsv", "-o", tmp_path / "run", "--score", "dot"]
    assert call("train", "translate", *table, *more) == 2
    assert "there is no file" in capsys.readouterr().err  # the options were accepted


def test_empty_lines_are_preserved(
    call: Call, trained: dict[str, Path], files: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for source in (files / "input.txt", "-"):
        data = (files / "input.txt").read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        assert call("translate", trained["transformer"], source, "--num-beams", 2, "--device", "cpu") == 0
        found.append(capsys.readouterr().out)
    assert found[0].count("\n") == 3 and found[0].split("\n")[1] == ""
    assert call("translate", trained["transformer"], "the dog sees", "--num-beams", 2, "--device", "cpu") == 0
    assert capsys.readouterr().out.split("\n")[0] == found[1].split("\n")[0]


def test_a_single_word_is_read_as_a_file_name(call: Call, trained: dict[str, Path], capsys: Captured) -> None:
    folder = trained["transformer"]
    assert call("translate", folder, "merci", "--device", "cpu") == 2
    error = capsys.readouterr().err
    assert "there is no file merci" in error
    assert f"a single word is taken for a file: to translate it, echo merci | regard translate {folder} -" in error
    for empty in ("", "  "):
        assert call("translate", folder, empty, "--device", "cpu") == 2
        assert "the text is empty" in capsys.readouterr().err


def test_an_existing_file_is_read(call: Call, trained: dict[str, Path], tmp_path: Path, capsys: Captured) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"\xe9t\xe9\n")
    assert call("translate", trained["transformer"], latin, "--device", "cpu") == 2
    error = capsys.readouterr().err
    assert "is not UTF-8" in error and "single word" not in error


def test_paragraphs_stay_paragraphs(call: Call, trained: dict[str, Path], capsys: Captured) -> None:
    assert call("translate", trained["transformer"], "The dog eats.\n\nThe cat eats.") == 0
    assert capsys.readouterr().out.count("\n\n") == 1


def test_several_translations(call: Call, trained: dict[str, Path], files: Path, capsys: Captured) -> None:
    options = ["--num-beams", 3, "--num-return-sequences", 2, "--device", "cpu"]
    assert call("translate", trained["lstm"], files / "input.txt", *options) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "2", "2"]
    assert float(rows[0][1]) >= float(rows[1][1])
    assert call("translate", trained["lstm"], files / "input.txt", *options, "--json") == 0
    texts = json.loads(capsys.readouterr().out)["texts"]
    assert [one["text"] for one in texts[0]["translations"]] == [rows[0][2], rows[1][2]]
    assert call("translate", trained["lstm"], files / "input.txt", "--num-beams", 2, "--num-return-sequences", 3) == 2
    assert "num_return_sequences is 3" in capsys.readouterr().err


def test_alignments(call: Call, trained: dict[str, Path], files: Path, tmp_path: Path, capsys: Captured) -> None:
    soft, hard = tmp_path / "soft.json", tmp_path / "hard.txt"
    for path in (soft, hard):
        assert (
            call("translate", trained["transformer"], files / "input.txt", "--alignments", path, "--num-beams", 1) == 0
        )
    out, error = capsys.readouterr()
    assert f"{hard}: alignments by the mean of heads 0, 1 of decoder layer 1" in error
    document, lines = json.loads(soft.read_text()), hard.read_text().split("\n")
    assert document["attention"]["layer"] == 1 and document["attention"]["heads"] == [0, 1]
    translations = out.split("\n")[:3]
    assert [len(several) for several in document["texts"]] == [1, 1, 1] and len(lines) == 4 and lines[1] == ""
    for text, [one], line in zip(translations, document["texts"], lines, strict=False):
        assert one["target"] == text.split()
        pairs = [tuple(map(int, pair.split("-"))) for pair in line.split()]
        assert pairs == [(row.index(max(row)), j) for j, row in enumerate(one["weights"])]
    assert call("translate", trained["transformer"], files / "input.txt", "--alignments", tmp_path / "a.csv") == 2
    assert "expected a name that ends in .json or .txt" in capsys.readouterr().err
    assert call("translate", trained["lstm"], files / "input.txt", "--alignments", hard) == 2
    assert "no attention (model.score is none)" in capsys.readouterr().err


def test_references(call: Call, trained: dict[str, Path], files: Path, capsys: Captured) -> None:
    options = [trained["transformer"], files / "input.txt", "--reference", files / "right.txt", "--device", "cpu"]
    assert call("translate", *options, "--json") == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    translations = [one["translations"][0]["text"] for one in document["texts"]]
    right = (files / "right.txt").read_text(encoding="utf-8").split("\n")[:3]
    assert document["bleu"]["bleu"] == sacrebleu.corpus_bleu(translations, [right]).score
    assert f"{document['bleu']['bleu']:6.2f}  nrefs:1|case:mixed" in error and "|case:lc|" in error
    assert call("translate", trained["transformer"], "the dog", "--reference", files / "right.txt") == 2
    assert "right.txt has 3 lines and the input 1" in capsys.readouterr().err


def test_a_trace(call: Call, trained: dict[str, Path], files: Path, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "trace.json"
    assert call("translate", trained["transformer"], files / "input.txt", "--trace", path, "--num-beams", 2) == 0
    translations = capsys.readouterr().out.split("\n")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["about"]["texts"] == ["the dog sees", "", "a cat eats"]
    assert [row["row"] for row in document["rows"]] == [0, 2]
    assert [row["results"][0]["text"] for row in document["rows"]] == [translations[0], translations[2]]
    page = tmp_path / "trace.html"
    assert call("translate", trained["transformer"], "the dog sees", "--trace", page, "--num-beams", 2) == 0
    assert "<svg" in page.read_text(encoding="utf-8") and "the dog sees" in page.read_text(encoding="utf-8")
    many = tmp_path / "many.txt"
    many.write_text("the dog\n" * 60, encoding="utf-8")
    assert call("translate", trained["transformer"], many, "--trace", path) == 2
    assert "of at most 50 texts" in capsys.readouterr().err


def test_models_that_do_not_translate(call: Call, tiny_bert_folder: Path, files: Path, capsys: Captured) -> None:
    assert call("translate", tiny_bert_folder, files / "input.txt") == 2
    assert "no translate.json" in capsys.readouterr().err
    assert call("translate", tiny_bert_folder, files / "inputs.txt") == 2
