"""The chapter on GPT: its numbers equal those of the library, and its tables have what the decks print."""

from __future__ import annotations

import math

import pytest

import regard
from regard.lessons.course.chapters import gpt_benchmarks, gpt_model, gpt_prompts
from regard.render.story import Diagram, StoryTable
from regard.verbs.python import LocalModels


@pytest.fixture(scope="module")
def models() -> LocalModels:
    return LocalModels()


def test_the_chain_rule_adds_up_to_the_score_of_the_text(models: LocalModels) -> None:
    found = gpt_model.scorer(models, gpt_model.ORDERED)
    assert "".join(token for token, _ in found) == gpt_model.ORDERED
    line = regard.score([gpt_model.ORDERED], model=gpt_model.MODEL).lines[0]
    assert sum(value for _, value in found) == pytest.approx(line.log_probability, abs=1e-3)


def test_every_task_has_its_sequences_and_a_row_of_real_tokens(models: LocalModels) -> None:
    (drawing,) = gpt_model.transformations_drawn(models)
    assert isinstance(drawing, Diagram)
    texts = [box.text for box in drawing.boxes]
    assert [texts.count(name) for name in ("Start", "Delim", "Extract", "Transformer")] == [8, 7, 8, 8]
    table = gpt_model.token_rows(models)[0]
    assert isinstance(table, StoryTable)
    assert [row[0] for row in table.rows].count("similarity") == 2
    first, second = (row[2] for row in table.rows if row[0] == "similarity")
    assert sorted(first.split()) == sorted(second.split()) and first != second


def test_the_benchmark_table_has_the_decks_figures_and_ours(models: LocalModels) -> None:
    table = gpt_benchmarks.table(models)[0]
    assert isinstance(table, StoryTable)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["GPT-J-6B"] == ("3.99", "65.3%", "66.1%", "76.5%")
    assert rows["Curie"][0] == "3.997"
    ours = rows["regard-gpt (ours)"]
    assert ours[1] == "no data" and all(cell[0].isdigit() for cell in (ours[0], *ours[2:]))


def test_without_data_the_sample_says_what_is_missing(models: LocalModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt_benchmarks, "find_data", lambda name: None)
    with pytest.raises(StopIteration) as stop:
        next(gpt_benchmarks.sample(models))
    assert [block.text.split("/")[0] for block in stop.value.value] == list(gpt_benchmarks.FILES)
    assert "REGARD_DATA" in stop.value.value[0].text


def test_the_price_of_gpt3_is_that_of_the_deck() -> None:
    found = gpt_benchmarks._gpt3_cost()
    assert found.parameters == pytest.approx(175e9, rel=0.01)
    assert found.money == pytest.approx(4.6e6, rel=0.03)


def test_a_larger_nucleus_holds_more_tokens(models: LocalModels) -> None:
    sizes = list(gpt_prompts.nucleus_sizes(models).values())
    assert sizes == sorted(sizes) and sizes[0] >= 1
    assert math.isclose(sum(gpt_prompts._numbers(models, gpt_prompts.SPIDER).values()), 1)
