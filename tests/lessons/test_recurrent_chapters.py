"""The chapters on recurrent translation, attention and ELMo, with small models in place of the built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.translation_pairs import TranslationPair
from regard.events import drain
from regard.inference.translation.subwords import train_subwords
from regard.inference.translation.translator import Translator, default_alignment_heads
from regard.lessons.course.chapter import Chapter, Computed, compute
from regard.lessons.course.chapters import alignment, attention, elmo, recurrent_translation
from regard.lessons.course.syllabus import SYLLABUS
from regard.lessons.reverse_comparison import ReverseConfig, ReverseTask, train_task
from regard.models import Elmo, ElmoConfig
from regard.render.story import NumberMatrix, StoryBlock, StoryTable
from regard.text import Tokenizer
from regard.training.recipes.translation.config import TranslatorSection
from regard.training.recipes.translation.recipe import new_model

CHAPTERS = [recurrent_translation.CHAPTER, attention.CHAPTER, elmo.CHAPTER]
PAIRS = [(attention.SOURCE, attention.TARGET), alignment.AREA, alignment.PIE]


class SmallModels:
    """Models by name, with random weights."""

    def __init__(self, models: dict[str, LoadedModel]) -> None:
        self.models = models

    def use(self, name: str, check: Callable[[str], object] | None = None) -> AbstractContextManager[LoadedModel]:
        return nullcontext(self.models[name])


@pytest.fixture
def models(randomized: Callable[..., Any], tiny_bert_folder: Path) -> SmallModels:
    pairs = [TranslationPair(*pair) for pair in PAIRS]
    subwords = train_subwords(pairs * 4, size=400, joint=True, exact=False)
    section = TranslatorSection(family="lstm", hidden_size=16, embedding_size=16, num_hidden_layers=1, dropout=0.0)
    model = randomized(new_model(section, subwords, seed=0), std=0.5).eval()
    translator = Translator(model, subwords, default_alignment_heads(model))
    tokenizer = Tokenizer.open(tiny_bert_folder)
    language_model = randomized(
        Elmo(ElmoConfig(vocab_size=tokenizer.size, num_characters=0, hidden_size=12, cell_size=12))
    )
    return SmallModels(
        {
            "regard-lstm-fr-en": LoadedModel("lstm", model, subwords, translator=translator),
            "regard-elmo": LoadedModel("elmo", language_model.eval(), tokenizer),
        }
    )


def blocks(chapter: Chapter, name: str, models: Any) -> list[StoryBlock]:
    part = next(part for part in chapter.parts if part.name == name)
    assert isinstance(part, Computed)
    return list(drain(compute(part.compute, models)))


def test_every_item_of_the_lectures_is_shown() -> None:
    shown = {key for chapter in CHAPTERS for part in chapter.parts for key in part.spec}
    assert shown >= {key for key in SYLLABUS if key[0] in "ABC"} | {"P1", "P2", "P7", "P13"}
    assert all(len(chapter.exercises) >= 6 for chapter in CHAPTERS)


def test_one_hot_rows_of_the_slide(models: SmallModels) -> None:
    _, X, y, deck = blocks(recurrent_translation.CHAPTER, "one-hot", models)
    assert isinstance(X, NumberMatrix) and isinstance(y, NumberMatrix) and isinstance(deck, StoryTable)
    assert X.values == y.values[::-1] and [row.index(1) for row in X.values] == [2, 8, 1, 6]
    assert {len(row) for row in X.values} == {10}
    assert [row[1:3] for row in deck.rows][:2] == [("9", "10"), ("7", "8")]


def test_the_context_has_the_same_size_for_every_sentence(models: SmallModels) -> None:
    table = blocks(recurrent_translation.CHAPTER, "contexts", models)[0]
    assert isinstance(table, StoryTable) and {row[2] for row in table.rows} == {"16"}


def test_the_five_steps_give_the_models_own_context(models: SmallModels) -> None:
    found = blocks(attention.CHAPTER, "five-steps", models)
    weights, total = found[2], found[4]
    assert isinstance(weights, StoryTable) and isinstance(total, NumberMatrix)
    assert float(weights.rows[-1][2]) == pytest.approx(1, abs=1e-3)
    assert total.values[0] == pytest.approx(total.values[1], abs=1e-5)


def test_time_steps_count_what_is_read_and_what_is_written(models: SmallModels) -> None:
    table, deck = blocks(attention.CHAPTER, "time-steps", models)
    assert isinstance(table, StoryTable) and isinstance(deck, StoryTable)
    assert [row[0] for row in table.rows] == [str(number) for number in range(1, len(table.rows) + 1)]
    read = sum(row[1] == "reads" for row in table.rows)
    assert deck.rows[0][2] == str(len(table.rows)) and deck.rows[1][2] == str(read + 1)


def test_the_recipes_ask_with_different_states() -> None:
    assert attention._query_distance("luong")[0] == pytest.approx(0, abs=1e-6)
    assert attention._query_distance("deck")[1] == pytest.approx(0, abs=1e-6)


def test_the_exercise_compares_two_runs() -> None:
    config = ReverseConfig(steps=3, features=5, units=6, train_size=40, test_size=10, epochs=1)
    runs = [train_task(ReverseTask(score, "luong", config)) for score in ("none", "dot")]  # type: ignore[arg-type]
    table = alignment.exercise_blocks(*runs)[0]
    assert isinstance(table, StoryTable)
    assert [row[2] for row in table.rows] == [f"{run.test.token_accuracy:.3f}" for run in runs]


def test_elmos_halves_depend_on_one_side_each(models: SmallModels, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERT", "GPT"):
        monkeypatch.setattr(elmo, name, "regard-elmo")
    found = elmo._sensitivity(models)
    assert {name: (left > 0, right > 0) for name, (left, right) in found.items() if "ELMo" in name} == {
        "word2vec, GloVe; ELMo's layer 0": (False, False),
        "ELMo, forward half": (True, False),
        "ELMo, backward half": (False, True),
        "ELMo": (True, True),
    }
    assert torch.is_grad_enabled()
