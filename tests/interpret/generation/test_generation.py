"""Generation with candidates: the texts of the text generator, and at every token the model's own probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.events import Progress
from regard.generation_config import GenerationConfig
from regard.inference.generation import Beam, Sampling, TextGenerator
from regard.interpret.generation import GeneratedTokens, Generation, GenerationStarted, generate, next_tokens
from regard.models import Gpt
from tests.inference.generation.folders import gpt_folder, t5_folder

SAMPLE = GenerationConfig(repetition_penalty=1.3, seed=5, max_new_tokens=12)
SEARCH = GenerationConfig(num_beams=3, num_return_sequences=3, max_new_tokens=6)


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
    for config in (SAMPLE, GenerationConfig(temperature=0.0, max_new_tokens=7)):
        writing = writer.stream(
            writer.encode_prompt("the film", max_new_tokens=config.max_new_tokens),
            sampling=Sampling(config.repetition_penalty, config.temperature, config.top_k, config.top_p, config.min_p),
            seed=config.seed,
        )
        list(writing)
        (expected,) = writing.texts
        said = generate(model, tokenizer, "the film", config=config)
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
        config=GenerationConfig(temperature=0.7, top_p=0.8, seed=1, max_new_tokens=8),
    )
    ids = tokenizer.encode("the film", add_special_tokens=False).ids
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


def test_events_hold_the_tokens_and_the_steps_of_a_search(gpt: Path, t5: Path) -> None:
    for folder, config in ((gpt, SAMPLE), (t5, SAMPLE), (gpt, SEARCH)):
        generation = Generation(LoadedModel("", *regard.load(folder)), "the film", config)
        started, *events = generation.events()
        assert isinstance(started, GenerationStarted) and started.run.prompt == "the film"
        tokens = [token for event in events if isinstance(event, GeneratedTokens) for token in event.tokens]
        assert tokens == generation.tokens and generation.result().tokens == generation.tokens
        steps = [event.done for event in events if isinstance(event, Progress)]
        assert steps == ([1, 2, 3, 4, 5, 6] if config is SEARCH else [])


def test_a_generation_can_be_abandoned(gpt: Path) -> None:
    for config in (SAMPLE, SEARCH):
        generation = Generation(LoadedModel("", *regard.load(gpt)), "the film", config)
        events = generation.events()
        for _ in range(3):
            next(events)
        events.close()
        assert generation.reason == "interrupted"


def test_what_may_come_next(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    sampling = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3)
    (first, *_) = generate(model, tokenizer, "the film", config=SAMPLE).tokens
    found = next_tokens(model, tokenizer, "the film", sampling=sampling)
    assert found.bars == first.candidates.bars[:15] and found.chosen is None and found.kept == first.candidates.kept


def test_the_result_before_the_first_token(gpt: Path) -> None:
    result = Generation(LoadedModel("tiny", *regard.load(gpt)), "x" * 60, SAMPLE).result()
    assert (result.tokens, result.texts, result.continues) == ([], [], True)
    assert result.truncated == 60 + 12 - 1 - 32 and result.method == "sample"


@pytest.mark.parametrize("beams", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_a_stop_string_ends_it(gpt: Path, beams: dict[str, Any]) -> None:
    model, tokenizer = regard.load(gpt)
    settings = {**beams, "seed": 3, "max_new_tokens": 10}
    whole = generate(model, tokenizer, "the film", config=GenerationConfig(**settings))
    stop = next(letter for letter in whole.text[1:] if letter.isascii() and letter.isalnum())
    said = generate(model, tokenizer, "the film", config=GenerationConfig(**settings, stop=[stop]))
    assert (said.text, said.reason) == (whole.text[: whole.text.index(stop)], "stop")
    assert [one.id for one in said.tokens] == [one.id for one in whole.tokens][: len(said.tokens)]
    assert len(said.tokens) < len(whole.tokens) and stop in said.tokens[-1].name
    assert said.texts[0].text == said.text


def test_a_model_that_only_reads(tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="cannot generate text"):
        generate(*regard.load(tiny_bert_folder), "the film")
