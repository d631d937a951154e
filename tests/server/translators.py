"""Tiny translators in folders, each trained on the lectures' two sentences only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.data.translation_pairs import TranslationPair
from regard.inference.translation.subwords import Subwords, train_subwords
from regard.inference.translation.translator import (
    TranslationModel,
    Translator,
    default_alignment_heads,
    save_translator,
)
from regard.nn.masks import Padded
from regard.training.recipes.translation.config import TranslatorSection
from regard.training.recipes.translation.recipe import new_model

TEXT, FRENCH = "Ich muss auf den Markt gehen.", "Je suis étudiant."
PAIRS = [TranslationPair(TEXT, "I must go to the market."), TranslationPair(FRENCH, "I am a student.")]
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"family": "transformer"},
    "dot": {"family": "lstm", "score": "dot"},
    "general": {"family": "lstm", "score": "general"},
    "additive": {"family": "lstm", "score": "additive", "recipe": "deck"},
    "none": {"family": "lstm", "score": "none"},
}


def write_translators(folder: Path, *, steps: int = 45) -> dict[str, str]:
    """Writes a folder for each of MODELS; after 45 training steps most translate the sentences."""
    # The page offers the French sentence if the model's name contains "fr".
    folders = {name: folder / (f"{name}-fr-en" if name == "dot" else name) for name in MODELS}
    subwords = train_subwords(PAIRS * 4, size=290, joint=True)
    for number, (name, settings) in enumerate(MODELS.items()):
        shape = TranslatorSection(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            embedding_size=16,
            dropout=0.0,
            **settings,
        )
        model = new_model(shape, subwords, seed=number)
        _teach(model, subwords, steps)
        save_translator(Translator(model.eval(), subwords, default_alignment_heads(model)), folders[name])
    return {name: str(folder) for name, folder in folders.items()}


def _teach(model: TranslationModel, subwords: Subwords, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(steps):
        for source, target in PAIRS:
            ids, right = (
                torch.tensor(subwords.encode_sources([source])),
                torch.tensor(subwords.encode_targets([target])),
            )
            scores = model.teacher_forced_logits(ids, Padded(), right)
            loss = torch.nn.functional.cross_entropy(scores[0], right[0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
