"""Texts with their bars: the same texts as the writer's, and at every place the model's own numbers."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.cli import generate as generate_command
from regard.cli.app import run
from regard.errors import InputError
from regard.inference.generation import Beam, Sampling, TextGenerator
from regard.interpret.generation.config import GenerationConfig, reproduce_lines
from regard.interpret.generation.generation import (
    Generation,
    generate,
    generate_side_by_side,
    generation_payload,
    next_tokens,
)
from regard.interpret.generation.prompts import PROMPTS
from regard.models import Gpt
from tests.inference.generation.folders import gpt_folder, t5_folder

WISH = GenerationConfig(Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3), seed=5, max_tokens=12)
SEARCH = GenerationConfig(beam=Beam(num_beams=3, num_return_sequences=3), max_tokens=6)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt_folder(tmp_path_factory.mktemp("gpt"))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return t5_folder(tmp_path_factory.mktemp("t5"))


@pytest.mark.parametrize("family", ["gpt", "t5"])
def test_it_is_the_writers_text(family: str, request: pytest.FixtureRequest) -> None:
    model, tokenizer = regard.load(request.getfixturevalue(family))
    writer = TextGenerator(model, tokenizer)
    for wish in (WISH, GenerationConfig(Sampling(temperature=0.0), max_tokens=7)):
        writing = writer.stream(
            writer.encode_prompt("the film", max_new_tokens=wish.max_tokens), sampling=wish.sampling, seed=wish.seed
        )
        list(writing)
        (expected,) = writing.texts
        said = generate(model, tokenizer, "the film", config=wish)
        assert (said.text, said.reason) == (expected.text, expected.reason)
        assert [token.id for token in said.tokens] == expected.tokens
        assert all(token.candidates.chosen == token.id for token in said.tokens)
        assert all(
            next(bar for bar in token.candidates.bars if bar.token == token.id).by is None for token in said.tokens
        )


def test_bars_are_the_models_probabilities(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    assert isinstance(model, Gpt) and tokenizer is not None
    said = generate(
        model,
        tokenizer,
        "the film",
        config=GenerationConfig(Sampling(temperature=0.7, top_p=0.8), seed=1, max_tokens=8),
    )
    ids = tokenizer.encode("the film", special=False).ids
    for number, token in enumerate(said.tokens):
        before = torch.tensor([[*ids, *(one.id for one in said.tokens[:number])]])
        with torch.inference_mode():
            logits = model.start(before)[0][0].double()
        probabilities, tempered = logits.softmax(-1), (logits / 0.7).softmax(-1)
        for bar in token.candidates.bars:
            assert bar.probability == pytest.approx(float(probabilities[bar.token]), abs=1e-6)
            assert bar.tempered == pytest.approx(float(tempered[bar.token]), abs=1e-6)
        # The nucleus by its definition: the likeliest tokens until their sum reaches 0.8.
        shares = tempered.sort(descending=True).values.cumsum(0)
        assert token.candidates.kept == int((shares < 0.8).sum()) + 1
        assert token.candidates.share == pytest.approx(float(shares[token.candidates.kept - 1]), abs=1e-6)


def test_a_search_has_its_tree_and_bars_along_the_best_text(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    writer = TextGenerator(model, tokenizer)
    expected = writer.beam_search(
        writer.encode_prompt("the film", max_new_tokens=6), beam=Beam(num_beams=3, num_return_sequences=3)
    )
    said = generate(model, tokenizer, "the film", config=SEARCH)
    assert said.text == expected[0].text and [token.id for token in said.tokens] == expected[0].tokens
    assert said.trace is not None and said.trace["method"] == "beam"
    (row,) = said.trace["rows"]
    assert [one["tokens"] for one in row["results"]] == [one.tokens for one in expected]
    shares = [next(b.probability for b in token.candidates.bars if b.token == token.id) for token in said.tokens]
    total = expected[0].log_probability
    assert total is not None and float(torch.tensor(shares).log().sum()) == pytest.approx(total, abs=1e-4)


def test_side_by_side_is_as_alone_and_told_in_rounds(gpt: Path, t5: Path) -> None:
    (model, tokenizer), (other, others) = regard.load(gpt), regard.load(t5)
    hot = GenerationConfig(Sampling(temperature=1.5), seed=2, max_tokens=9)
    made = [(model, tokenizer, WISH), (model, tokenizer, hot), (other, others, WISH), (model, tokenizer, SEARCH)]
    speeches = [Generation(TextGenerator(a, b), "the film", wish) for a, b, wish in made]
    news: list[dict[str, Any]] = []
    generate_side_by_side(speeches, lambda one: news.append(dict(one)))
    for speech, (a, b, wish) in zip(speeches, made, strict=True):
        alone = generate(a, b, "the film", config=wish)
        assert [token.id for token in speech.tokens] == [token.id for token in alone.tokens]
        assert (speech.text, speech.reason) == (alone.text, alone.reason)
    for number, speech in enumerate(speeches):
        told = [token for one in news for token in one.get("tokens", {}).get(str(number), [])]
        assert told == [token.document() for token in speech.tokens]
        (over,) = [one["over"][str(number)] for one in news if str(number) in one.get("over", {})]
        assert over == {"reason": speech.reason, "trace": speech.trace}
    steps = [one["searched"]["3"] for one in news if "searched" in one]
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]


def test_whoever_raises_stops_it(gpt: Path) -> None:
    class Enough(Exception):
        pass

    def tell(news: object) -> None:
        heard.append(news)
        if len(heard) == 3:
            raise Enough

    for wish in (WISH, SEARCH):
        heard: list[object] = []
        speech = Generation(TextGenerator(*regard.load(gpt)), "the film", wish)
        with pytest.raises(Enough):
            generate_side_by_side([speech], tell)
        assert speech.reason == "interrupted" and len(heard) == 3


def test_what_may_come_next(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    sampling = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3)
    (first, *_) = generate(model, tokenizer, "the film", config=GenerationConfig(sampling, max_tokens=2)).tokens
    found = next_tokens(model, tokenizer, "the film", sampling=sampling)
    assert found.bars == first.candidates.bars[:15] and found.chosen is None and found.kept == first.candidates.kept


@pytest.mark.parametrize(
    "wish",
    [
        WISH,
        SEARCH,
        GenerationConfig(Sampling(top_k=7, min_p=0.02, temperature=1.5), max_tokens=9, stops=("-#", "e")),
        GenerationConfig(
            beam=Beam(num_beams=3, num_return_sequences=2, length_penalty=-0.5, early_stopping=True),
            max_tokens=6,
            stops=("e",),
        ),
    ],
)
@pytest.mark.parametrize("prompt", ["the film", '- it\'s a "day"', "-"])
def test_the_lines_write_the_same(
    wish: GenerationConfig,
    prompt: str,
    gpt: Path,
    page_built: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = generate(*regard.load(gpt), prompt, config=wish)
    cli, python = reproduce_lines(str(gpt), prompt, wish)
    piped, _, command = cli.rpartition(" | ") if prompt == "-" else ("", "", cli)
    program, verb, *arguments = shlex.split(command)
    assert (program, verb) == ("regard", "generate")
    if piped:  # as a shell does it
        piece = subprocess.run(["sh", "-c", piped], capture_output=True, check=True).stdout
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piece)))
    assert run(["generate", *arguments], registers=[generate_command.register]) == 0
    assert "Regard: generation" in (tmp_path / "page.html").read_text("utf-8")
    out = capsys.readouterr().out
    assert said.text in out if wish.beam else out == said.text + "\n"
    exec(python, {})
    assert capsys.readouterr().out.startswith(said.text + "\n")


def test_the_payload(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    speeches = [Generation(TextGenerator(model, tokenizer), "x" * 60, wish, "tiny") for wish in (WISH, SEARCH)]
    payload: dict[str, Any] = generation_payload("x" * 60, speeches)
    first, second = payload["runs"]
    assert payload["view"] == "generation" and "stochastic parrots" in str(payload["caveat"])
    assert (first["tokens"], first["reason"], first["continues"]) == ([], "interrupted", True)
    assert first["cut"] == 60 + 12 - 1 - 32 and first["settings"]["method"] == "sample"
    assert second["settings"]["method"] == "beam" and second["settings"]["beam"] == 3
    assert str(payload["cli"]).splitlines() == [first["cli"], second["cli"]]
    assert first["cli"].endswith("--page page.html") and second["cli"].endswith("--page page-2.html")


@pytest.mark.parametrize("beam", [None, Beam(num_beams=3, num_return_sequences=2)])
def test_a_stop_string_ends_it(gpt: Path, beam: Beam | None) -> None:
    model, tokenizer = regard.load(gpt)
    whole = generate(model, tokenizer, "the film", config=GenerationConfig(beam=beam, seed=3, max_tokens=10))
    stop = next(letter for letter in whole.text[1:] if letter.isascii() and letter.isalnum())
    said = generate(
        model, tokenizer, "the film", config=GenerationConfig(beam=beam, seed=3, max_tokens=10, stops=(stop,))
    )
    assert (said.text, said.reason) == (whole.text[: whole.text.index(stop)], "stop")
    assert [one.id for one in said.tokens] == [one.id for one in whole.tokens][: len(said.tokens)]
    assert len(said.tokens) < len(whole.tokens) and stop in said.tokens[-1].name
    assert said.texts[0].text == said.text


def test_the_lectures_prompts_are_there() -> None:
    assert PROMPTS["A story"] == "This is a story about me and my brothers"
    assert all(text.strip() == text for text in PROMPTS.values())


def test_a_model_that_only_reads(tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="reads texts and writes none"):
        generate(*regard.load(tiny_bert_folder), "the film")
