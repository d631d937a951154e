"""No verb lets text control the terminal: hostile names, texts, labels and tokens are printed escaped."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shutil
import sys
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

import regard
from regard.cli.app import Register, build, run, verbs
from regard.cli.commands import register as register_verb
from regard.data.translation_pairs import TranslationPair
from regard.inference.translation.subwords import train_subwords
from regard.inference.translation.translator import Translator, default_alignment_heads, save_translator
from regard.interpret.probes import layers as lab
from regard.interpret.probes.probe_heads import ProbeRecipe
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from regard.text import Tokenizer
from regard.training.recipes.translation.config import TranslatorSection
from regard.training.recipes.translation.recipe import new_model
from regard.verbs import VERBS as DEFINED
from regard.verbs import find
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding

Captured = pytest.CaptureFixture[str]

# A window title, blinking text, "clear the screen" with a C1 character, right-to-left text, rich markup, line erasure.
EVIL = "\x1b]0;owned\x07\x1b[5;7m\x9b2J\u202edenwo[red]\x08\x7f\r\u2066"
WORD = EVIL.replace("\r", "[/bold]")  # for the contents of files, not for file names
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
OURS = re.compile(r"\x1b\[(?:\?25[lh]|\d*A|2K|[\d;]*m)|\r")  # escape sequences of rich: cursor, line and color
COMMANDS = typer.main.get_command(build(verbs())).commands  # type: ignore[attr-defined]
VERBS = [name for name, command in COMMANDS.items() if not command.hidden]  # without aliases
REGISTERS = {
    register.__module__.rpartition(".")[2]: register for register in verbs()
}  # one lesson: building all of them takes longer

TEXTS, ROWS, TAGS, SETTINGS = (f"{EVIL}{name}" for name in ("texts.txt", "rows.tsv", "tags.conll", "settings.toml"))
BERT, GPT, FINE_TUNED, TRANSLATOR = (f"{name}{EVIL}" for name in ("bert", "gpt", "solved", "translator"))
QUICK = "training.num_epochs=1"
HERE = ("--device", "cpu")
EXACT = ("generate", "score", "translate")  # they print data, which scripts receive unchanged

# Exit code and arguments, followed by --device cpu if the code is 0. Every verb is here: with hostile input that it
# accepts if that is fast, and with hostile input that it rejects.
CASES: dict[str, list[tuple[int, list[str]]]] = {
    "studio": [(2, [EVIL])],
    "serve": [(2, [f"./{EVIL}"]), (2, [BERT, "--api-key-file", EVIL])],
    "corpus": [(2, ["build", EVIL, "-o", "x"])],
    "tour": [(2, ["--output", EVIL])],
    "lesson": [(2, [EVIL]), (2, ["reverse", "--output", EVIL])],
    "tokenize": [(0, [TEXTS, "--model", BERT]), (0, [f"the {WORD}", "--model", BERT]), (2, ["a", "--vocab", EVIL])],
    "embed": [
        (0, [TEXTS, "--model", BERT, "--output", f"{EVIL}.npy"]),
        (2, [EVIL, "--model", BERT, "--output", "x.npy"]),
    ],
    "fill": [
        (0, [f"the {WORD} _ and _", "--model", BERT, "--top", "200"]),
        (0, [f"the {WORD} _", "--model", BERT, "--top", "200", "--json"]),
        (2, ["the _", "--model", BERT, "--targets", EVIL]),
    ],
    "compare": [(0, [f"the {WORD} _", "the day _", "--model", BERT, "-k", "all"]), (2, ["a _", "-m", f"./{EVIL}"])],
    "index": [(2, [TEXTS, "--model", BERT, "--output", TEXTS]), (2, [EVIL, "--model", BERT, "--output", "x"])],
    "export": [
        (2, [f"./{EVIL}", "--format", "onnx", "--output", EVIL]),
        (2, [BERT, "--format", EVIL, "--output", "x"]),
    ],
    "search": [(0, [TEXTS, WORD, "--model", BERT]), (2, [EVIL, WORD, "--model", BERT])],
    "duplicates": [(0, [TEXTS, "--model", BERT, "--threshold", "0.1"]), (2, [EVIL, "--model", BERT])],
    "cluster": [(0, [TEXTS, "--model", BERT, "--num-clusters", "2"]), (2, [EVIL, "--model", BERT])],
    "next": [(2, [EVIL, EVIL, "--model", f"./{EVIL}"])],
    "next-token": [(0, ["the \x1b[5;7m\x08 was", "--model", GPT]), (2, ["a", "--model", f"./{EVIL}"])],
    "decode": [(0, [f"the {WORD} was", "--model", GPT, "--max-new-tokens", "2"]), (2, ["a", "--model", f"./{EVIL}"])],
    "perplexity": [(0, [TEXTS, "--model", GPT]), (2, [EVIL])],
    "generate": [
        (0, ["the film", "--model", GPT, "--max-new-tokens", "30", "-t", "3", "--top-p", "1"]),
        (0, [WORD, "--model", GPT, "--max-new-tokens", "2", "--json"]),
        (0, [9 * EVIL, "--model", GPT, "--max-new-tokens", "2"]),
        (2, ["the film", "--model", GPT, "--trace", EVIL]),
    ],
    "lens": [(0, [f"the {WORD} was", "--model", GPT]), (2, ["a", "--model", f"./{EVIL}"])],
    "logit-attribution": [
        (0, ["the \x1b[5;7m\x08 was", "--model", GPT]),
        (2, ["a", "--model", GPT, "--answer", EVIL]),
    ],
    "patch": [
        (0, ["the \x1b[5;7m\x08 was", "the \x1b[5;7m\x08 saw", "--model", GPT, "--answer", "w", "--wrong", "s"]),
        (2, [EVIL, f"{EVIL} a", "--model", GPT]),
    ],
    "long-attention": [(0, [f"the {WORD} was", "--model", GPT]), (2, ["a", "--model", f"./{EVIL}"])],
    "activations": [
        (0, [TEXTS, "--model", BERT, "--layer", "1", "--head", "0"]),
        (2, [EVIL, "--layer", "1", "--head", "0"]),
    ],
    "score": [(0, [TEXTS, "--model", GPT]), (2, [EVIL])],
    "benchmark": [(0, ["piqa", "--data", "items.jsonl", "--model", GPT]), (2, [EVIL, "--data", EVIL])],
    "cost": [(2, [EVIL, "--tokens", "1B"]), (2, [SETTINGS, "--tokens", "1B"])],
    "pretrain": [
        (2, ["bert", "-c", TEXTS, "-o", "x", "--config", SETTINGS]),
        (2, ["bert", "-c", EVIL, "-o", "x", "--set", "schedule.max_steps=1"]),
    ],
    "train": [
        (
            0,
            ["classify", "--train", ROWS, "--dev", ROWS, "--model", BERT, "-o", f"run{EVIL}", "--set", QUICK],
        ),
        (2, ["classify", "--train", ROWS, "--dev", "unknown.tsv", "--model", BERT, "-o", f"none{EVIL}"]),
        (2, ["classify", "--train", ROWS, "-o", "x", "--config", SETTINGS]),
    ],
    "translate": [(0, [TRANSLATOR, TEXTS, "--num-beams", "1"]), (0, [TRANSLATOR, TEXTS, "--json"]), (2, [EVIL, "a b"])],
    "evaluate": [(0, [FINE_TUNED, "--data", ROWS]), (2, [FINE_TUNED, "--data", "unknown.tsv"])],
    "predict": [(0, [FINE_TUNED, TEXTS]), (2, [EVIL, TEXTS])],
    "doctor": [(1, [FINE_TUNED, "--data", ROWS, "--train", ROWS]), (2, [FINE_TUNED, "--data", EVIL])],
    "attribute": [(0, [f"good {WORD}", "--model", FINE_TUNED]), (2, ["the _", "--model", BERT, "--label", EVIL])],
    "faithfulness": [(0, [FINE_TUNED, f"it is a good {WORD} day"]), (2, [FINE_TUNED, "it is", "--label", EVIL])],
    "features": [(0, ["--data", ROWS, "--model", BERT]), (2, ["--data", EVIL])],
    "layers": [
        (0, ["--train", TAGS, "--dev", TAGS, "--model", BERT]),
        (2, ["--train", EVIL, "--dev", EVIL, "--model", BERT]),
    ],
    "look": [
        (0, [f"the {WORD} film", "--model", GPT]),
        (0, ["the film", "--model", BERT, "-o", f"{EVIL}.svg"]),
        (2, ["the film", "--model", BERT, "-o", EVIL]),
    ],
    "rerank": [
        (2, [EVIL, EVIL, "--model", FINE_TUNED]),
    ],
    "classify": [
        (0, [TEXTS, "--labels", f"{WORD},film", "--model", BERT]),
        (2, [TEXTS, "--labels", EVIL, "--model", FINE_TUNED]),
        (2, [EVIL, "--labels", "a,b", "--label-column", EVIL, "--model", BERT]),
    ],
    "similarity": [(2, [EVIL, EVIL, "--model", f"./{EVIL}"])],
    "figure": [(0, [f"the film {WORD} was _", "--model", BERT]), (2, ["the", "--model", BERT, "--without", EVIL])],
    "senses": [(0, ["film", f"the film {WORD}", "a film", "--model", BERT]), (2, [EVIL, "a b", "b c", "-m", BERT])],
    "heads": [(0, ["--text", TEXTS, "--model", BERT]), (2, ["--text", EVIL, "--model", BERT])],
    "ablate": [
        (0, [f"{EVIL[:25]}", "--model", GPT, "--heads", "1.1", "--top", "300"]),
        (0, [f"good {WORD}", "--model", FINE_TUNED]),
        (2, ["the _", "--model", BERT, "--heads", EVIL]),
    ],
    "map": [(0, [ROWS, "--model", BERT]), (2, [EVIL, "--model", BERT])],
    "models": [(2, [EVIL])],
    "download": [(2, [EVIL])],
    "cache": [(2, ["--clear", EVIL])],
    "version": [(2, [EVIL])],
}


@pytest.fixture(scope="module")
def folder(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models and data that contain hostile strings wherever strings are possible."""
    folder = tmp_path_factory.mktemp("hostile")
    model, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    tokens = (tiny_bert_folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    tokens[tokens.index("hot")] = WORD
    (folder / "tokens").mkdir()
    (folder / "tokens" / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    regard.save(model, folder / BERT, Tokenizer.open(folder / "tokens"))
    tiny_gpt(folder, positions=40).rename(folder / GPT)
    labels = (f"bad{WORD}", f"good{WORD}")
    save_fine_tuned(
        FineTunedModel(TextClassification(labels), deciding(tokenizer, 3).model, tokenizer, 64), folder / FINE_TUNED
    )
    subwords = train_subwords(
        [TranslationPair("the film was", f"der {WORD}"), TranslationPair("a day", f"ein {WORD}")] * 4,
        size=290,
        joint=True,
    )
    shape = TranslatorSection(
        family="transformer",
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        embedding_size=16,
        dropout=0.0,
    )
    translating = new_model(shape, subwords, seed=0).eval()
    save_translator(Translator(translating, subwords, default_alignment_heads(translating)), folder / TRANSLATOR)
    tags = "the DT O\ngood JJ O\nwater{0} NN I-{0}\n\nthey PR O\nmake VB O\nsound NN I-{0}\n\n".format(
        WORD.replace(" ", "")
    )
    contents = {
        TEXTS: f"the film {WORD} was good\nthe day{WORD} was long\nit is so\nthe film was bad\n",
        ROWS: "".join(f"the {label[:4]} day{WORD} {number}\t{label}\n" for number in range(10) for label in labels),
        TAGS: tags * 6,
        SETTINGS: f"[training]\n{json.dumps(EVIL)} = 1\n",
        "unknown.tsv": f"the day\t{EVIL}\nthe film\tgood{WORD}\n".replace("\r", ""),
        "items.jsonl": json.dumps({"goal": EVIL, "sol1": WORD, "sol2": "the film", "label": 0}) + "\n",
    }
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.fixture
def quick(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to the folder of hostile files and minimizes the work of each verb."""
    monkeypatch.chdir(folder)
    shutil.rmtree(f"run{EVIL}", ignore_errors=True)
    monkeypatch.setattr(lab, "LINEAR", ProbeRecipe(batch_size=256, epochs=1, steps=2, learning_rate=5e-2))
    monkeypatch.setattr("regard.interpret.figure.ablation.ENGLISH", ("the day was good",))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Connects both streams to a terminal; at the end the list holds all output."""
    reader, writer = pty.openpty()
    tty.setraw(writer)  # otherwise the terminal driver converts line ends to "\r\n"
    parts: list[bytes] = []
    found: list[str] = []

    def drain() -> None:
        while True:
            try:
                part = os.read(reader, 1 << 16)
            except OSError:  # Linux raises this when all writers have closed
                return
            if not part:
                return
            parts.append(part)

    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    with monkeypatch.context() as patch, os.fdopen(writer, "wb", buffering=0) as raw:
        stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        yield found
        stream.flush()
    thread.join(timeout=60)
    os.close(reader)
    found.append(b"".join(parts).decode("utf-8"))


Case = tuple[str, int, list[str]]
REFUSED: list[Case] = [(verb, 2, [f"--{EVIL}"]) for verb in VERBS]
TRIED: list[Case] = [(verb, code, arguments) for verb, several in CASES.items() for code, arguments in several]


def _register(verb: str) -> Register:
    """Registers only this command: building all of them takes longer."""
    name = "corpus_build" if verb == "corpus" else verb.replace("-", "_")
    if name in DEFINED and name not in REGISTERS:
        return lambda app: register_verb(app, find(name))
    return REGISTERS[{"tour": "lesson", "studio": "serve", "version": "app"}.get(verb, verb)]


def call(verb: str, code: int, arguments: list[str]) -> int:
    return run([verb, *arguments, *(HERE if code < 2 else ())], registers=[_register(verb)])


def test_every_verb_has_a_case() -> None:
    assert set(CASES) == set(VERBS)


@pytest.mark.parametrize(("verb", "code", "arguments"), REFUSED + TRIED)
def test_streams(verb: str, code: int, arguments: list[str], quick: None, capsys: Captured) -> None:
    found = call(verb, code, arguments)
    out, error = capsys.readouterr()
    assert found == code, error
    assert CONTROL.findall(error) == []
    if verb in EXACT and code == 0 and "--json" not in arguments:
        return
    assert CONTROL.findall(out) == []
    # Makes sure that the hostile text was printed at all.
    assert re.search(r"\\(x1b|x08|u001b)", out + error)


@pytest.mark.parametrize(("verb", "code", "arguments"), TRIED)
def test_a_terminal(verb: str, code: int, arguments: list[str], quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as found:
        assert call(verb, code, arguments) == code
    assert "\x1b[5;7m" not in found[0]
    assert CONTROL.findall(OURS.sub("", found[0])) == []
