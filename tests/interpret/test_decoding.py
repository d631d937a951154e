"""Decoding step by step: the recorded steps are those of the searches and samplers, for translators and GPTs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.generation_config import GenerationConfig
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.subwords import Subwords
from regard.inference.translation.translator import translator_of
from regard.interpret.decoding import DecodingSteps, decode_in_steps
from tests.interpret.conftest import Both, translator

TEXT = "the red dog sees a house"


@pytest.fixture(scope="module")
def loaded(subwords: Subwords) -> LoadedModel:
    return LoadedModel("tiny", translator(subwords).eval(), subwords)


def config(**options: Any) -> GenerationConfig:
    return GenerationConfig(max_new_tokens=6, **options)


def chosen(found: DecodingSteps, row: int = 0) -> list[int]:
    return found.trace["rows"][row]["results"][0]["tokens"]


def test_searches_of_a_translator(loaded: LoadedModel) -> None:
    greedy = decode_in_steps(loaded, TEXT, config(temperature=0))
    expected = translator_of(loaded).translate([TEXT])[0][0]
    assert greedy.method == "greedy" and tuple(chosen(greedy)) == expected.ids
    assert all(len(step["choices"]) == 1 for step in greedy.trace["rows"][0]["steps"])
    beam = decode_in_steps(loaded, TEXT, config(num_beams=3, num_return_sequences=2))
    best = translator_of(loaded).translate([TEXT], beam=Beam(3, num_return_sequences=2))[0]
    results = beam.trace["rows"][0]["results"]
    assert [tuple(one["tokens"]) for one in results] == [one.ids for one in best]
    assert [one["log_probability"] for one in results] == pytest.approx([one.log_probability for one in best])
    assert beam.page_data()["view"] == "decoding" and best[0].text in beam.to_text()


def test_samples_of_a_translator(loaded: LoadedModel) -> None:
    found = decode_in_steps(loaded, TEXT, config(temperature=1.0, top_p=0.5, num_return_sequences=2, seed=3))
    again = decode_in_steps(loaded, TEXT, config(temperature=1.0, top_p=0.5, num_return_sequences=2, seed=3))
    assert found.method == "sample" and found.trace == again.trace and len(found.trace["rows"]) == 2
    for row in found.trace["rows"]:
        total = 0.0
        for step in row["steps"]:
            (kept,) = (one for one in step["choices"][0]["candidates"] if one["fate"] in ("kept", "ended"))
            total += kept["log_probability"] or 0.0
            assert kept["chance"] >= math.exp(kept["log_probability"] or 0.0) - 1e-9  # filters leave more for the rest
        assert row["results"][0]["log_probability"] == pytest.approx(total)
    headers, rows = found.to_table()
    assert len(headers) == len(rows[0]) == 8


def test_a_language_model(gpt: Both) -> None:
    found = decode_in_steps(LoadedModel("gpt", gpt.ours, gpt.tokenizer), "the film", config(temperature=0))
    (row,) = found.trace["rows"]
    for step in row["steps"]:
        candidates = step["choices"][0]["candidates"]
        assert candidates[0]["fate"] in ("kept", "ended")  # the likeliest


def test_an_empty_text(loaded: LoadedModel) -> None:
    with pytest.raises(InputError, match="the text is empty"):
        decode_in_steps(loaded, " ", config())
