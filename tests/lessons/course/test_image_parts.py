"""The last chapter's images: patches of the built-in digits model, and one attention map for two classes."""

from __future__ import annotations

import pytest

from regard.lessons.course.chapters import images_and_reasons as images
from regard.render.story import PatchSequence, StoryTable
from regard.verbs.python import LocalModels


@pytest.fixture(scope="module")
def models() -> LocalModels:
    return LocalModels("cpu")


def test_the_image_is_a_sequence_of_patches(models: LocalModels) -> None:
    drawing, table = images.patches(models)
    assert isinstance(drawing, PatchSequence) and isinstance(table, StoryTable)
    rows = {row[0]: row[1:3] for row in table.rows}
    assert rows["tokens with [CLS]"] == ("197", str(len(drawing.patches) + 1))


def test_the_map_is_the_same_for_two_classes_and_attributions_are_not(models: LocalModels) -> None:
    table = images.class_swap(models)[0]
    assert isinstance(table, StoryTable)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["attention map"] == (f"0 of {len(images._probe(models, images.DOUBTFUL).ids)}", "1.000")
    assert not rows["integrated gradients"][0].startswith("0 of")
    assert images.swap_answer(models).choice == 0


def test_the_model_sees_a_seven(models: LocalModels) -> None:
    assert images._faithfulness(models, images.SEVEN).label == "7"
    assert images.tokens_answer(models).choice == 1
