"""Text generation: context length, generated text, stop strings, and finish reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import regard
from regard.errors import InputError
from regard.events import drain
from regard.inference.generation.beam_search import Beam, beam_search, greedy_search
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import GenerationStream, TextGenerator
from tests.inference.generation.folders import gpt_folder, t5_folder

WARM = Sampling(temperature=1.2)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> TextGenerator:
    return TextGenerator(*regard.load(gpt_folder(tmp_path_factory.mktemp("gpt"))))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> TextGenerator:
    return TextGenerator(*regard.load(t5_folder(tmp_path_factory.mktemp("t5"))))


@pytest.fixture(params=["gpt", "t5"])
def writer(request: pytest.FixtureRequest) -> TextGenerator:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, TextGenerator)
    return found


def test_greedy_generation_equals_greedy_search(writer: TextGenerator) -> None:
    prompt = writer.encode_prompt("the film", max_new_tokens=9)
    ids = writer.tokenizer.encode("the film", add_special_tokens=not writer.continues).ids
    assert prompt.ids == ids
    (expected,) = greedy_search(writer.decoder, torch.tensor([ids]), end=writer.end, max_new_tokens=9)
    for sampling in (None, Sampling(temperature=0.0)):
        writing = GenerationStream(writer, prompt, sampling=sampling)
        pieces = list(writing)
        (text,) = writing.texts
        assert tuple(token for token in text.tokens if token != writer.end) == expected.ids
        before = ids if writer.continues else []
        decoded = writer.tokenizer.decode([*before, *expected.ids])
        assert text.text == decoded[len(writer.tokenizer.decode(before)) :]
        assert "".join(piece for _, piece in pieces) == text.text
        assert text.reason == ("end" if expected.finished else "length")


def test_samples_do_not_depend_on_their_number(writer: TextGenerator) -> None:
    """20 texts are more than one batch."""
    prompt = writer.encode_prompt("the day", max_new_tokens=10)

    def texts(number: int, seed: int = 3) -> list[str]:
        writing = GenerationStream(writer, prompt, sampling=WARM, num_return_sequences=number, seed=seed)
        pieces = [""] * number
        for row, piece in writing:
            pieces[row] += piece
        assert pieces == [one.text for one in writing.texts]
        return pieces

    twenty = texts(20)
    assert texts(1) == twenty[:1] and texts(17) == twenty[:17]
    assert len(set(twenty)) > 17
    assert texts(20, seed=4) != twenty


def test_beam_search_returns_several_texts(writer: TextGenerator) -> None:
    prompt, beam = writer.encode_prompt("the film", max_new_tokens=6), Beam(num_beams=4, num_return_sequences=3)
    (expected,) = beam_search(writer.decoder, torch.tensor([prompt.ids]), beam=beam, end=writer.end, max_new_tokens=6)
    found = drain(writer.search_steps(prompt, beam=beam))
    assert [tuple(one.tokens) for one in found] == [one.ids for one in expected]
    assert [(one.score, one.log_probability) for one in found] == [(h.score, h.log_probability) for h in expected]
    assert [one.reason for one in found] == ["end" if one.finished else "length" for one in expected]


def test_a_stop_string_ends_a_text(t5: TextGenerator) -> None:
    prompt = t5.encode_prompt("the film", max_new_tokens=30)
    free = GenerationStream(t5, prompt, sampling=WARM, num_return_sequences=8, seed=1)
    list(free)
    stopped = GenerationStream(t5, prompt, sampling=WARM, num_return_sequences=8, seed=1, stop_strings=["e", "day"])
    pieces = list(stopped)
    reasons = set()
    for row, (before, after) in enumerate(zip(free.texts, stopped.texts, strict=True)):
        indices = [before.text.index(stop) for stop in ("e", "day") if stop in before.text]
        assert after.text == "".join(piece for number, piece in pieces if number == row)
        assert after.text == (before.text[: min(indices)] if indices else before.text)
        assert after.reason == ("stop" if indices else before.reason)
        assert after.tokens == before.tokens[: len(after.tokens)]
        reasons.add(after.reason)
    assert len(reasons) > 1
    assert sum(len(one.tokens) for one in stopped.texts) < sum(len(one.tokens) for one in free.texts)


def test_a_stop_string_cuts_a_beams_texts(t5: TextGenerator) -> None:
    prompt = t5.encode_prompt("the film", max_new_tokens=6)
    (free,) = drain(t5.search_steps(prompt, beam=Beam(num_beams=3)))
    letter = free.text.strip()[1]
    (cut,) = drain(t5.search_steps(prompt, beam=Beam(num_beams=3), stop_strings=[letter]))
    assert cut.text == free.text[: free.text.index(letter)] and cut.reason == "stop"


@pytest.mark.parametrize(
    ("length", "requested", "cut", "allowed"),
    [
        (10, 20, 0, 20),  # all fits
        (10, 23, 0, 23),  # the last generated token is not read again: 10 + 23 - 1 = 32
        (10, 24, 0, 23),  # no room for the last: the prompt is not cut for more than half of the context
        (10, 99, 0, 23),
        (30, 8, 5, 8),  # the prompt is cut to at most half of the context
        (30, 99, 13, 16),
        (32, 1, 0, 1),
        (33, 1, 1, 1),
        (500, 8, 475, 8),
        (500, 99, 483, 16),
    ],
)
def test_prompt_truncation_and_maximum_length(
    gpt: TextGenerator, length: int, requested: int, cut: int, allowed: int
) -> None:
    """The context has 32 positions; a prompt is cut at its beginning."""
    text = ("abcdefghij" * 50)[:length]
    prompt = gpt.encode_prompt(text, max_new_tokens=requested)
    assert (prompt.truncated, prompt.max_new_tokens, prompt.truncated_text) == (cut, allowed, text[:cut])
    assert gpt.tokenizer.decode(prompt.ids) == text[cut:]
    writing = GenerationStream(gpt, prompt, sampling=Sampling(top_k=5))
    list(writing)
    assert len(writing.texts[0].tokens) == allowed or writing.texts[0].reason == "end"


def test_a_t5_has_no_limit(t5: TextGenerator) -> None:
    prompt = t5.encode_prompt("the film " * 80, max_new_tokens=3)
    assert (prompt.truncated, prompt.max_new_tokens) == (0, 3) and len(prompt.ids) > 100
    list(GenerationStream(t5, prompt, sampling=None))


def test_an_empty_prompt_is_the_begin_token(gpt: TextGenerator, tmp_path: Path) -> None:
    assert gpt.encode_prompt("", max_new_tokens=5).ids == [0]
    list(GenerationStream(gpt, gpt.encode_prompt("", max_new_tokens=5), sampling=WARM))
    without = TextGenerator(*regard.load(gpt_folder(tmp_path / "gpt", begin=False)))
    with pytest.raises(InputError, match="prompt is empty, and this model has no begin token"):
        without.encode_prompt("", max_new_tokens=5)
    (text,) = (writing := GenerationStream(without, without.encode_prompt("a", max_new_tokens=5), sampling=WARM)).texts
    list(writing)
    assert (len(text.tokens), text.reason) == (5, "length")


def test_the_repetition_penalty_counts_a_gpts_prompt(gpt: TextGenerator) -> None:
    """Under an enormous penalty, sampling repeats tokens of the prompt and the output far less often."""
    prompt = gpt.encode_prompt("abcdefghijklmnopqrst", max_new_tokens=12)

    def count_repetitions(penalty: float) -> int:
        writing = GenerationStream(gpt, prompt, sampling=Sampling(repetition_penalty=penalty), num_return_sequences=16)
        list(writing)
        return sum(token in prompt.ids for one in writing.texts for token in one.tokens)

    free = count_repetitions(1.0)
    assert free > 10 and 4 * count_repetitions(1e9) < free


def test_an_interrupted_text_contains_the_tokens_so_far(gpt: TextGenerator) -> None:
    writing = GenerationStream(gpt, gpt.encode_prompt("the", max_new_tokens=9), sampling=WARM, seed=2)
    pieces = iter(writing)
    _, first = next(pieces)
    assert writing.texts[0].text == first and writing.texts[0].reason == "interrupted"


def test_invalid_input_is_refused(gpt: TextGenerator, tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="cannot generate text"):
        TextGenerator(*regard.load(tiny_bert_folder))
    with pytest.raises(InputError, match="has no tokenizer"):
        TextGenerator(gpt.model, None)
    with pytest.raises(InputError, match="max_new_tokens is 0"):
        gpt.encode_prompt("the", max_new_tokens=0)
