"""The registry of families: sizes are counted, capabilities are asked, listing needs no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from regard.errors import InputError
from regard.models import Bert, BertConfig, Gpt, GptConfig
from regard.models.family import (
    Checkpoint,
    build,
    can,
    describe_family,
    describe_model,
    families,
    family_of,
    get_family,
    known_checkpoints,
)

SMALL = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)


@pytest.mark.parametrize("known", known_checkpoints(), ids=lambda known: known.name)
def test_sizes_are_counted(known: Checkpoint) -> None:
    config = get_family(known.family).config_class(family=known.family, **known.shape)
    with torch.device("meta"):
        model = build(config, heads=known.heads)
    assert sum(parameter.numel() for parameter in model.parameters()) == known.parameters


def test_titles_have_the_right_article() -> None:
    assert [describe_family(name) for name in ("bert", "elmo", "gpt2")] == ["a BERT", "an ELMo", "a GPT-2"]
    assert describe_model(nn.Linear(1, 1)) == "a Linear" and family_of(nn.Linear(1, 1)) is None


def test_capabilities_need_their_heads() -> None:
    whole, bare = Bert(SMALL), Bert(SMALL, heads=())
    assert can(whole, "masked-lm") and can(whole, "next-sentence") and not can(whole, "causal-lm")
    assert not can(bare, "masked-lm") and not can(bare, "next-sentence") and can(bare, "fine-tuning")
    assert not can(nn.Linear(1, 1), "masked-lm")
    gpt = Gpt(GptConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8))
    assert can(gpt, "causal-lm") and can(gpt, "text-generation") and not can(gpt, "encoder-decoder")
    with pytest.raises(InputError, match="capability"):
        get_family("bert").can("flying")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(families()))
def test_a_declaration_fits_its_classes(name: str) -> None:
    family = get_family(name)
    with torch.device("meta"):
        model = build(family.config_class(family=name))
    assert family_of(model) is family
    if family.file_format is not None:
        assert set(family.file_format.keys) <= set(vars(model.config))
    assert set(family.earlier_keys.values()) <= set(vars(model.config))


def test_listing_does_not_import_torch() -> None:
    code = "import sys; from regard.models.family import known_checkpoints as k; k(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
