"""Model families: parameter counts, capabilities, declarations, and names without importing torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from regard.checkpoints.file_format import format_of
from regard.errors import InputError
from regard.models import Bert, BertConfig, Gpt, GptConfig
from regard.models.family import (
    Checkpoint,
    build,
    can,
    describe_family,
    describe_model,
    families,
    family_names,
    family_of,
    get_family,
    known_checkpoints,
    pretrainable_families,
)
from regard.training.recipes.pretraining.config import ModelSection

SMALL = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)


@pytest.mark.parametrize("known", known_checkpoints(), ids=lambda known: known.name)
def test_parameter_counts(known: Checkpoint) -> None:
    config = get_family(known.family).config_class(family=known.family, **known.shape)
    with torch.device("meta"):
        model = build(config, output_heads=known.output_heads)
    assert sum(parameter.numel() for parameter in model.parameters()) == known.parameters


def test_titles_have_articles() -> None:
    assert [describe_family(name) for name in ("bert", "elmo", "gpt2")] == ["a BERT", "an ELMo", "a GPT-2"]
    assert describe_model(nn.Linear(1, 1)) == "a Linear" and family_of(nn.Linear(1, 1)) is None


def test_capabilities_require_their_heads() -> None:
    whole, bare = Bert(SMALL), Bert(SMALL, output_heads=())
    assert can(whole, "masked-lm") and can(whole, "next-sentence") and not can(whole, "causal-lm")
    assert not can(bare, "masked-lm") and not can(bare, "next-sentence") and can(bare, "fine-tuning")
    assert not can(nn.Linear(1, 1), "masked-lm")
    gpt = Gpt(GptConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8))
    assert can(gpt, "causal-lm") and can(gpt, "text-generation") and not can(gpt, "encoder-decoder")
    with pytest.raises(InputError, match="capability"):
        get_family("bert").can("flying")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(families()))
def test_declaration_matches_its_classes(name: str) -> None:
    family = get_family(name)
    with torch.device("meta"):
        model = build(family.config_class(family=name))
    assert family_of(model) is family
    file = format_of(name)
    if file is not None:
        assert set(file.keys) <= set(vars(model.config))


def test_family_names_do_not_import_torch() -> None:
    code = "import sys; from regard.models.family import family_names as f; f(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert sorted(family_names()) == sorted(families())


def test_recipes_build_their_model() -> None:
    for family in pretrainable_families().values():
        assert family.pretraining is not None
        config = family.config_class(**family.pretraining.config_fields(dict(ModelSection())))
        assert config.family == family.name and config.hidden_size == ModelSection().hidden_size
