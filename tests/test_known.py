"""The list of known models tells the truth: every size is counted on a model of that shape."""

from __future__ import annotations

import pytest
import torch

from regard.known import CHECKPOINTS, FAMILY_NOTES, Checkpoint, one_of
from regard.models.catalog import FAMILIES, build


def test_every_family_is_listed() -> None:
    assert set(FAMILY_NOTES) == set(FAMILIES)


@pytest.mark.parametrize("known", CHECKPOINTS, ids=lambda known: known.name)
def test_sizes_are_counted(known: Checkpoint) -> None:
    config = FAMILIES[known.family].config(family=known.family, **known.shape)
    with torch.device("meta"):
        model = build(config, heads=known.heads)
    assert sum(parameter.numel() for parameter in model.parameters()) == known.parameters


def test_a_sentence_has_the_right_article() -> None:
    assert [one_of(family) for family in ("bert", "elmo", "gpt2")] == ["a BERT", "an ELMo", "a GPT-2"]
    assert all(one_of(family).split()[1] != family for family in FAMILY_NOTES) and one_of("Linear") == "a Linear"
