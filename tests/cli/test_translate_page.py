"""`regard translate --steps --output page.html`: a page of the decoding with the command that reproduces it."""

from __future__ import annotations

import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.cli.app import run
from regard.data.translation_pairs import TranslationPair
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.subwords import train_subwords
from regard.inference.translation.translator import (
    Translator,
    default_alignment_heads,
    load_translator,
    save_translator,
)
from regard.interpret.translation import translate_in_steps
from regard.training.recipes.translation.config import TranslatorSection
from regard.training.recipes.translation.recipe import new_model
from regard.verbs import find

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    path = tmp_path_factory.mktemp("translator") / "de-en"
    subwords = train_subwords([TranslationPair("der Hund sieht", "the dog sees")] * 4, size=270, joint=True)
    model = new_model(
        TranslatorSection(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16),
        subwords,
        seed=0,
    )
    save_translator(Translator(model.eval(), subwords, default_alignment_heads(model)), path)
    return path


@pytest.fixture(autouse=True)
def built(page_built: None) -> None:
    pass


def call(*arguments: object) -> int:
    return run(["translate", *map(str, arguments)])


def payload_of(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    start = text.index('id="regard">') + len('id="regard">')
    found: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
    return found


@pytest.mark.parametrize(
    "options", [(), ("--num-beams", 3, "--num-return-sequences", 2, "--length-penalty", 0.5), ("--num-beams", 1)]
)
def test_the_command_on_a_page_reproduces_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, options: tuple[object, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "der Hund's </script>"
    assert call(folder, text, "--steps", "--output", "first.html", "--device", "cpu", *options) == 0
    first = payload_of(Path("first.html"))
    width, nbest, penalty = (3, 2, 0.5) if len(options) > 2 else (1, 1, 1.0) if options else (5, 1, 1.0)
    beam = None if width == 1 else Beam(num_beams=width, num_return_sequences=nbest, length_penalty=penalty)
    translator = load_translator(folder)
    result = translate_in_steps(translator, text, beam=beam, name=str(folder))
    expected = {**result.page_data(), "cli": first["cli"], "python": first["python"]}
    assert first == expected and len(first["hypotheses"]) == nbest
    words = shlex.split(first["cli"])
    assert words[:2] == ["regard", "translate"]
    assert call(*words[2:], "--device", "cpu", "--output", "page.html") == 0
    assert payload_of(Path("page.html")) == first


def test_a_single_word_is_given_on_standard_input(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Hund\n"), encoding="utf-8"))
    assert call(folder, "-", "--steps", "--output", tmp_path / "page.html", "--num-beams", 2) == 0
    assert payload_of(tmp_path / "page.html")["text"] == "Hund"
    verb = find("translate")
    request = verb.parse({"model": str(folder), "source": ["Hund"]})
    assert verb.command_line(request) == f"printf '%s\\n' Hund | regard translate {folder} -"


def test_translations_that_a_page_cannot_show(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "page.html"
    (tmp_path / "two.txt").write_text("der Hund\nsieht\n", encoding="utf-8")
    (tmp_path / "none.txt").write_text("", encoding="utf-8")
    for source, message in (
        (tmp_path / "two.txt", "--steps is for one text, and the input has several; give one line"),
        (tmp_path / "none.txt", "none.txt is empty"),
        (" ", "the text is empty"),
    ):
        assert call(folder, source, "--steps", "--output", page) == 2
        out, error = capsys.readouterr()
        assert message in error and out == ""
    assert call(folder, "der Hund", "--output", page) == 2
    assert "translate it with --steps" in capsys.readouterr().err
    assert not page.exists()
