"""The chapters on BERT and on fine-tuning: their numbers equal those of the library and of the decks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.events import drain
from regard.lessons.course import data_sets
from regard.lessons.course.chapter import Chapter, Exercise
from regard.lessons.course.chapters import bert, bert_examples, fine_tuning, fine_tuning_examples
from regard.render.story import Paragraph, StoryTable
from regard.verbs.python import LocalModels


@pytest.fixture(scope="module")
def models() -> LocalModels:
    return LocalModels()


def table(blocks: object, at: int = -1) -> StoryTable:
    assert isinstance(blocks, list)
    found = [block for block in blocks if isinstance(block, StoryTable)][at]
    assert isinstance(found, StoryTable)
    return found


def test_the_ids_of_the_deck(models: LocalModels, shared_data: Callable[[str], Path]) -> None:
    shared_data(data_sets.SST2)
    blocks = bert_examples.ids(models)
    assert [row[3] for row in table(blocks, 0).rows] == ["equal"] * 5
    assert table(blocks).rows[0][1:3] == ("66", "59") and "67 of all 6,920" in table(blocks).rows[0][3]


def test_without_the_vocabulary_the_part_says_what_is_missing(
    models: LocalModels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(data_sets, "CLONE", tmp_path / "clone")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    first, ids, *_ = bert_examples.ids(models)
    assert isinstance(first, Paragraph) and "vocab.txt is not on this machine" in first.text
    assert isinstance(ids, StoryTable) and {row[3] for row in ids.rows} == {"another vocabulary"}
    (words,) = fine_tuning_examples.sst2_rows(models)
    assert isinstance(words, Paragraph) and "REGARD_DATA" in words.text


def test_only_chosen_positions_have_a_loss(models: LocalModels) -> None:
    rows = table(bert_examples.loss(models)).rows
    counted = [row for row in rows if row[4] != "not counted"]
    assert 1 <= len(counted) <= 0.2 * len(rows)
    assert all(row[1] == row[2] for row in rows if row[4] == "not counted")


def test_masking_replaces_80_10_10(models: LocalModels) -> None:
    fractions = bert_examples._mask_fractions(models)
    assert fractions["chosen"] == pytest.approx(0.15, abs=0.001)
    assert [fractions["mask"], fractions["random"], fractions["same"]] == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


def test_half_of_the_pairs_follow(models: LocalModels) -> None:
    blocks = bert_examples.examples(models)
    assert float(table(blocks).rows[0][2].rstrip("%")) == pytest.approx(50, abs=4)
    for a, b, label in table(blocks, 0).rows:
        story = " ".join(bert_examples.STORY.lower().split())
        assert (f"{a} {b}" in story) == (label == "follows")


def test_the_figure_of_the_deck(models: LocalModels) -> None:
    rows = table(bert_examples.skit(models)).rows
    assert [row[:2] for row in rows] == [("Aardvark", "0.1%"), ("Improvisation", "10%"), ("Zyzzyva", "0%")]
    found = regard.fill(bert_examples.SKIT, targets=["improvisation"]).masks[0][0]
    assert rows[1][2] == f"{found.probability:.2g}"


def test_the_scores_of_the_leader_board(models: LocalModels) -> None:
    human, leaders, inference = (table(fine_tuning_examples.squad(models), at).rows for at in range(3))
    assert [row[2:] for row in human] == [("82.304", "91.221"), ("85.083", "91.835")]
    assert [row[1:] for row in leaders] == [("87.4", "93.2"), ("86.0", "91.7"), ("85.1", "91.8"), ("83.5", "90.1")]
    assert [row[1:] for row in inference] == [("86.7", "91.1", "86.3"), ("82.2", "88.1", "75.0")]


def test_the_messages_of_the_deck(models: LocalModels) -> None:
    rows = table(fine_tuning_examples.spam(models)).rows
    assert [row[:2] for row in rows] == [*fine_tuning_examples.MESSAGES]
    for text, _, ours, _ in rows:
        [found] = regard.predict("regard-spam", [text]).predictions
        assert ours.startswith(f"{found['label']} (")
    assert table(fine_tuning_examples.toxic(models)).rows[0][1] == "99% toxic comment"


def test_the_built_in_reviews() -> None:
    rows = data_sets.reviews()
    assert len({text for text, _ in rows}) == 64
    assert Counter(label for _, label in rows) == {"good": 32, "bad": 32}


def test_the_layer_table_has_the_deck_beside_ours(models: LocalModels) -> None:
    rows = table(fine_tuning_examples.layer_table(models)).rows
    assert [row[1] for row in rows] == ["91.0", "94.9", "95.5", "95.6", "95.9", "96.1"]
    assert all(40 < float(row[2]) < 100 for row in rows)


@pytest.mark.parametrize("chapter", [bert.CHAPTER, fine_tuning.CHAPTER], ids=lambda chapter: chapter.name)
def test_answers_are_among_the_choices(chapter: Chapter, models: LocalModels) -> None:
    exercises = [part for part in chapter.parts if isinstance(part, Exercise)]
    assert len(exercises) >= 7
    if chapter is fine_tuning.CHAPTER:  # the others embed the reviews anew
        exercises = [part for part in exercises if part.name in ("pooling", "head-size", "human")]
    for part in exercises:
        outcome = part.answer(models)
        answer = outcome if isinstance(outcome, tuple) else drain(outcome)
        assert 0 <= answer.choice < len(part.choices) and answer.explanation, part.name
