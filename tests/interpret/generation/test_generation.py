"""Generation with candidates: the texts of the text generator, and at every token the model's own probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.events import Event
from regard.generation_config import GenerationConfig
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import GenerationStream, TextGenerator
from regard.interpret.generation import (
    PROMPTS,
    Generation,
    RunEnd,
    RunSearch,
    RunTokens,
    generate,
    generate_side_by_side,
    next_tokens,
)
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
def test_the_text_equals_that_of_the_text_generator(family: str, request: pytest.FixtureRequest) -> None:
    model, tokenizer = regard.load(request.getfixturevalue(family))
    generator = TextGenerator(model, tokenizer)
    for config in (SAMPLE, GenerationConfig(temperature=0.0, max_new_tokens=7)):
        stream = GenerationStream(
            generator,
            generator.encode_prompt("the film", max_new_tokens=config.max_new_tokens),
            sampling=Sampling(config.repetition_penalty, config.temperature, config.top_k, config.top_p, config.min_p),
            seed=config.seed,
        )
        list(stream)
        (expected,) = stream.texts
        generated = generate(model, tokenizer, "the film", config=config)
        assert (generated.text, generated.reason) == (expected.text, expected.reason)
        assert [token.id for token in generated.tokens] == expected.tokens
        assert all(
            next(one for one in token.candidates if one.token == token.id).removed_by is None
            for token in generated.tokens
        )


def test_candidates_have_the_models_probabilities(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    assert isinstance(model, Gpt) and tokenizer is not None
    generated = generate(
        model,
        tokenizer,
        "the film",
        config=GenerationConfig(temperature=0.7, top_p=0.8, seed=1, max_new_tokens=8),
    )
    ids = tokenizer.encode("the film", add_special_tokens=False).ids
    for number, token in enumerate(generated.tokens):
        before = torch.tensor([[*ids, *(one.id for one in generated.tokens[:number])]])
        with torch.inference_mode():
            logits = model.start(before)[0][0].double()
        probabilities, tempered = logits.softmax(-1), (logits / 0.7).softmax(-1)
        for one in token.candidates:
            assert one.probability == pytest.approx(float(probabilities[one.token]), abs=1e-6)
            assert one.scaled_probability == pytest.approx(float(tempered[one.token]), abs=1e-6)
        # The nucleus by its definition: the likeliest tokens until their sum reaches 0.8.
        shares = tempered.sort(descending=True).values.cumsum(0)
        assert token.nucleus_size == int((shares < 0.8).sum()) + 1
        assert token.nucleus_probability == pytest.approx(float(shares[token.nucleus_size - 1]), abs=1e-6)


def test_a_beam_search_has_its_trace_and_candidates_along_the_best_text(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    generator = TextGenerator(model, tokenizer)
    expected = generator.beam_search(
        generator.encode_prompt("the film", max_new_tokens=6), beam=Beam(num_beams=3, num_return_sequences=3)
    )
    generated = generate(model, tokenizer, "the film", config=SEARCH)
    assert generated.text == expected[0].text and [token.id for token in generated.tokens] == expected[0].tokens
    assert generated.trace is not None and generated.trace["method"] == "beam"
    (row,) = generated.trace["rows"]
    assert [one["tokens"] for one in row["results"]] == [one.tokens for one in expected]
    shares = [next(b.probability for b in token.candidates if b.token == token.id) for token in generated.tokens]
    total = expected[0].log_probability
    assert total is not None and float(torch.tensor(shares).log().sum()) == pytest.approx(total, abs=1e-4)


def test_side_by_side_generation_equals_separate_generation(gpt: Path, t5: Path) -> None:
    (model, tokenizer), (other, others) = regard.load(gpt), regard.load(t5)
    hot = GenerationConfig(temperature=1.5, top_p=1.0, seed=2, max_new_tokens=9)
    made = [(model, tokenizer, SAMPLE), (model, tokenizer, hot), (other, others, SAMPLE), (model, tokenizer, SEARCH)]
    generations = [Generation(LoadedModel("", a, b), "the film", config) for a, b, config in made]
    events: list[Event] = []
    generate_side_by_side(generations, events.append)
    for generation, (a, b, config) in zip(generations, made, strict=True):
        alone = generate(a, b, "the film", config=config)
        assert [token.id for token in generation.tokens] == [token.id for token in alone.tokens]
        assert (generation.text, generation.reason) == (alone.text, alone.reason)
    for number, generation in enumerate(generations):
        tokens = [token for one in events if isinstance(one, RunTokens) and one.run == number for token in one.tokens]
        assert tokens == generation.tokens
        (end,) = [one for one in events if isinstance(one, RunEnd) and one.run == number]
        assert (end.reason, end.trace) == (generation.reason, generation.trace)
    steps = [one for one in events if isinstance(one, RunSearch)]
    assert [(one.run, one.step, one.total) for one in steps] == [(3, step, 6) for step in range(1, 7)]


def test_an_exception_in_on_event_stops_generation(gpt: Path) -> None:
    class Enough(Exception):
        pass

    def on_event(event: Event) -> None:
        events.append(event)
        if len(events) == 3:
            raise Enough

    for config in (SAMPLE, SEARCH):
        events: list[Event] = []
        generation = Generation(LoadedModel("", *regard.load(gpt)), "the film", config)
        with pytest.raises(Enough):
            generate_side_by_side([generation], on_event)
        assert generation.reason == "interrupted" and len(events) == 3


def test_next_tokens_equal_the_first_candidates(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    sampling = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3)
    (first, *_) = generate(model, tokenizer, "the film", config=SAMPLE).tokens
    found = next_tokens(model, tokenizer, "the film", sampling=sampling)
    assert found.candidates == first.candidates[:15] and found.nucleus_size == first.nucleus_size


def test_a_run_before_it_starts(gpt: Path) -> None:
    loaded = LoadedModel("tiny", *regard.load(gpt))
    first, second = (Generation(loaded, "x" * 60, config).result().run() for config in (SAMPLE, SEARCH))
    assert (first.model, first.tokens, first.reason, first.continues) == ("tiny", [], "interrupted", True)
    assert first.truncated == 60 + 12 - 1 - 32 and first.method == "sample"
    assert (second.method, second.settings.num_beams) == ("beam", 3)


@pytest.mark.parametrize("beams", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_a_stop_string_ends_the_text(gpt: Path, beams: dict[str, Any]) -> None:
    model, tokenizer = regard.load(gpt)
    settings = {**beams, "seed": 3, "max_new_tokens": 10}
    whole = generate(model, tokenizer, "the film", config=GenerationConfig(**settings))
    stop = next(letter for letter in whole.text[1:] if letter.isascii() and letter.isalnum())
    generated = generate(model, tokenizer, "the film", config=GenerationConfig(**settings, stop=[stop]))
    assert (generated.text, generated.reason) == (whole.text[: whole.text.index(stop)], "stop")
    assert [one.id for one in generated.tokens] == [one.id for one in whole.tokens][: len(generated.tokens)]
    assert len(generated.tokens) < len(whole.tokens) and stop in generated.tokens[-1].name
    assert generated.texts[0].text == generated.text


def test_prompts_of_the_lectures() -> None:
    assert PROMPTS["A story"] == "This is a story about me and my brothers"
    assert all(text.strip() == text for text in PROMPTS.values())


def test_an_encoder_cannot_generate(tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="cannot generate text"):
        generate(*regard.load(tiny_bert_folder), "the film")
