"""Tiny translators in folders, each of which was taught the lectures' two sentences and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.data.translation_pairs import Pair
from regard.inference.translation import Translator
from regard.inference.translation.align import usual_looking
from regard.inference.translation.build import Translating, next_scores
from regard.inference.translation.folder import write
from regard.inference.translation.subwords import Subwords, train_subwords
from regard.nn import Padded
from regard.training.translation.build import new_model
from regard.training.translation.config import TranslatorSection

TEXT, FRENCH = "Ich muss auf den Markt gehen.", "Je suis étudiant."
PAIRS = [Pair(TEXT, "I must go to the market."), Pair(FRENCH, "I am a student.")]
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"kind": "transformer"},
    "dot": {"kind": "lstm", "score": "dot"},
    "general": {"kind": "lstm", "score": "general"},
    "additive": {"kind": "lstm", "score": "additive", "recipe": "deck"},
    "none": {"kind": "lstm", "score": "none"},
}


def write_translators(place: Path, *, lessons: int = 45) -> dict[str, str]:
    """A folder for each of MODELS, by its name; after 45 lessons most know the sentences."""
    # The page offers the French sentence where a name says that the model knows French.
    folders = {name: place / (f"{name}-fr-en" if name == "dot" else name) for name in MODELS}
    subwords = train_subwords(PAIRS * 4, size=290, joint=True)
    for number, (name, settings) in enumerate(MODELS.items()):
        shape = TranslatorSection(width=16, depth=2, heads=2, ffn=32, embedding=16, dropout=0.0, **settings)
        model = new_model(shape, subwords, seed=number)
        _teach(model, subwords, lessons)
        write(Translator(model.eval(), subwords, usual_looking(model)), folders[name])
    return {name: str(folder) for name, folder in folders.items()}


def _teach(model: Translating, subwords: Subwords, lessons: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(lessons):
        for source, target in PAIRS:
            ids, right = torch.tensor(subwords.sources([source])), torch.tensor(subwords.targets([target]))
            scores = next_scores(model, ids, Padded(), right)
            loss = torch.nn.functional.cross_entropy(scores[0], right[0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
