"""Translators with every kind of attention and random weights, and the text they translate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regard.inference.translation.subwords import Subwords
from regard.inference.translation.translator import Translator, as_translation_model, default_alignment_heads
from tests.interpret.conftest import translator as new_model

RECURRENT = [(score, recipe) for score in ("dot", "general", "additive") for recipe in ("luong", "deck")]
KINDS = ["transformer", *(f"lstm {score} {recipe}" for score, recipe in RECURRENT)]


@pytest.fixture
def make_translator(subwords: Subwords, randomised: Callable[..., Any]) -> Callable[[str], Translator]:
    """Make a translator by kind: "transformer", "lstm none", or "lstm" with a score and a recipe."""

    def make(kind: str) -> Translator:
        kind, *more = kind.split()
        settings = dict(zip(("score", "recipe"), more, strict=False))
        model = as_translation_model(new_model(subwords, family=kind, **settings))
        randomised(model, std=0.5)
        return Translator(model.eval(), subwords, default_alignment_heads(model))

    return make


@pytest.fixture(params=KINDS)
def translator(request: pytest.FixtureRequest, make_translator: Callable[[str], Translator]) -> Translator:
    return make_translator(request.param)
