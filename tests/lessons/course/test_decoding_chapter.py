"""The worked examples of the chapter on decoding: what the built-in models must show."""

from __future__ import annotations

import math

import pytest

from regard.lessons.course.chapters import decoding_answers as answers
from regard.lessons.course.chapters import decoding_examples as examples
from regard.render.story import StoryTable
from regard.verbs.python import LocalModels


@pytest.fixture(scope="module")
def models() -> LocalModels:
    return LocalModels("cpu")


def test_a_beam_finds_a_likelier_translation_than_greedy_search(models: LocalModels) -> None:
    (steps,) = examples.greedy(models)
    assert isinstance(steps, StoryTable)
    product = math.prod(float(row[2].rstrip("%")) / 100 for row in steps.rows)
    assert product == pytest.approx(float(steps.rows[-1][4].rstrip("%")) / 100, rel=0.05)
    (widths,) = examples.beam_widths(models)
    assert isinstance(widths, StoryTable)
    log_probabilities = [float(row[1]) for row in widths.rows]
    assert log_probabilities[0] == float(steps.rows[-1][5]) < log_probabilities[-1]


def test_temperature_and_top_p(models: LocalModels) -> None:
    table = examples.temperatures(models)[0]
    assert isinstance(table, StoryTable)
    choices = [float(row[-1]) for row in table.rows]
    assert choices == sorted(choices)
    sizes = [examples.nucleus_size(models, examples.STORY, top_p) for top_p in (0.5, 0.9, 0.99)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


def test_samples_follow_the_distribution(models: LocalModels) -> None:
    best = examples.translations(models, examples.STUDENT, beams=5)[0]
    share = examples.sampled_translations(models)[best.text] / examples.NUM_SAMPLES
    assert share == pytest.approx(math.exp(best.log_probability), abs=0.1)


def test_answers_of_the_exercises(models: LocalModels) -> None:
    expected = {
        answers.answer_greedy: 1,
        answers.answer_one_beam: 0,
        answers.answer_length: 0,
        answers.answer_temperature: 0,
        answers.answer_nucleus: 1,
        answers.answer_samples: 1,
    }
    assert [answer(models).choice for answer in expected] == list(expected.values())


def test_repeated_sequences() -> None:
    assert examples.repeated_share("a b c a b c") == 0.25
    assert examples.repeated_share("a b") == 0
