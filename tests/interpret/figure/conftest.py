"""One model of each kind with a figure: an encoder, a decoder, and encoder-decoders with post-norm and pre-norm."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from torch import nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.load_model import load_model
from regard.inference.translation.subwords import Subwords
from regard.interpret.attention.recording import TextTokenizer
from regard.interpret.figure.figure import Figure, figure_of
from tests.interpret.conftest import Both, translator

KINDS = ("encoder", "decoder", "post", "pre")


@dataclass(frozen=True, eq=False)
class FigureCase:
    kind: str
    model: nn.Module
    reader: TextTokenizer
    text: str
    figures: dict[str, Figure] = field(default_factory=dict)

    def figure(self, without: str = "") -> Figure:
        """Return the figure of the text without the named components; cached."""
        if without not in self.figures:
            names = without.split(",") if without else []
            self.figures[without] = figure_of(LoadedModel("m", self.model, self.reader), self.text, without=names)
        return self.figures[without]


@pytest.fixture(params=KINDS, scope="session")
def case(request: pytest.FixtureRequest, tiny_bert_folder: Path, gpt: Both, subwords: Subwords) -> FigureCase:
    kind = request.param
    if kind == "encoder":
        return FigureCase(kind, *load_model(tiny_bert_folder), "the film was good, and so was the day")
    if kind == "decoder":
        return FigureCase(kind, gpt.ours, gpt.tokenizer, "the film was good")
    model = translator(subwords, norm_first=kind == "pre")
    return FigureCase(kind, model, subwords, "the red dog sees a house")
