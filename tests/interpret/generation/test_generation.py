"""Generation with candidates: the texts of the text generator, and the model's probabilities at every token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.events import Progress, drain
from regard.generation_config import GenerationConfig
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import GenerationStream, TextGenerator
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
    expected = drain(
        generator.search_steps(
            generator.encode_prompt("the film", max_new_tokens=6), beam=Beam(num_beams=3, num_return_sequences=3)
        )
    )
    generated = generate(model, tokenizer, "the film", config=SEARCH)
    assert generated.text == expected[0].text and [token.id for token in generated.tokens] == expected[0].tokens
    assert generated.trace is not None and generated.trace["method"] == "beam"
    (row,) = generated.trace["rows"]
    assert [one["tokens"] for one in row["results"]] == [one.tokens for one in expected]
    shares = [next(b.probability for b in token.candidates if b.token == token.id) for token in generated.tokens]
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


def test_next_tokens_equal_the_first_candidates(gpt: Path) -> None:
    model, tokenizer = regard.load(gpt)
    sampling = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3)
    (first, *_) = generate(model, tokenizer, "the film", config=SAMPLE).tokens
    found = next_tokens(model, tokenizer, "the film", sampling=sampling)
    assert found.candidates == first.candidates[:15] and found.nucleus_size == first.nucleus_size


def test_run_attributes_before_the_first_token(gpt: Path) -> None:
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


def test_an_encoder_cannot_generate(tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="cannot generate text"):
        generate(*regard.load(tiny_bert_folder), "the film")
