"""The last chapter: associations, head patterns, patches of an image and the class swap."""

from __future__ import annotations

import numpy as np
import pytest

from regard.lessons.course.chapters import associations, head_patterns
from regard.render.story import PatchSequence, Story, StoryTable
from regard.verbs.python import LocalModels


@pytest.fixture(scope="module")
def models() -> LocalModels:
    return LocalModels("cpu")


def test_logits_point_at_the_wrong_pronoun_by_the_normalizer_alone(models: LocalModels) -> None:
    wrong, gap = associations.signs(models)
    assert wrong
    for one, raw in wrong:
        assert (one.difference > 0) == (one.probability_a > one.probability_b) != (raw > 0)
        assert raw - one.difference == pytest.approx(gap, abs=1e-3)
    assert associations.signs_answer(models).choice == sum(len(wrong) >= limit for limit in (1, 6, 21))


def test_captions_stand_beside_that_of_the_deck(models: LocalModels) -> None:
    (table,) = associations.captions(models)
    assert isinstance(table, StoryTable)
    rows = dict(table.rows)
    assert rows["Texas and New York, ours"].startswith("regard-bert associates these potential purchases")
    assert "Texas" in rows["Texas and New York, deck"]


def test_every_pattern_of_the_deck_is_counted(models: LocalModels) -> None:
    table = head_patterns.patterns(models)[0]
    assert isinstance(table, StoryTable)
    assert [row[0] for row in table.rows] == [printed for printed, _ in head_patterns.PATTERNS]
    counts = head_patterns._census(models).counts
    assert {name for _, name in head_patterns.PATTERNS} <= set(counts)
    assert head_patterns.pattern_answer(models).choice == int(np.argmax([counts[n] for _, n in head_patterns.PATTERNS]))


def test_patches_are_in_reading_order_with_their_positions() -> None:
    pixels = np.zeros((4, 6), dtype=np.uint8)
    pixels[2:, 2:4] = 200  # the second patch of the second row
    block = PatchSequence.of_image("an image", pixels, (2, 3))
    assert (len(block.patches), block.columns) == (6, 3)
    assert [round(255 * value) for value in block.brightness] == [0, 0, 0, 0, 200, 0]
    text = Story(title="", blocks=[block]).to_text()
    assert "[CLS] is position 0" in text and "5██" in text
