"""The loss compared with its formula."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.inference.translation.subwords import train_subwords
from regard.training.recipes.translation.config import TranslationConfig
from regard.training.recipes.translation.recipe import EncodedPair, TranslationObjective, collate_pairs, new_model
from tests.inference.translation.conftest import SMALL, sentences

PAIRS = sentences(60)
SUBWORDS = train_subwords(PAIRS, size=300, joint=True)


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_label_smoothing_ignores_padding(kind: str) -> None:
    settings = TranslationConfig.read(overrides=[*SMALL, f"model.family={kind}"])
    model = new_model(settings.model, SUBWORDS, seed=0).eval()
    sources = SUBWORDS.encode_sources([pair.source for pair in PAIRS[:3]])
    targets = SUBWORDS.encode_targets([pair.target for pair in PAIRS[:3]])
    pairs = [EncodedPair(*both) for both in zip(sources, targets, strict=True)]
    together = TranslationObjective(model, label_smoothing=0.1, padding=SUBWORDS.padding)(
        collate_pairs(pairs, padding=SUBWORDS.padding)
    )
    total, count = 0.0, 0
    for pair in pairs:  # one by one, without padding
        batch = collate_pairs([pair], padding=SUBWORDS.padding)
        scores = model.teacher_forced_logits(batch.source, batch.layout, batch.target)[0].log_softmax(-1).detach()
        for row, token in zip(scores, pair.target, strict=True):
            total -= float(0.9 * row[token] + 0.1 * row.mean())
            count += 1
    assert float(together["loss"].detach()) == pytest.approx(total / count, rel=1e-5)


def test_rdrop_adds_the_divergence_of_two_passes() -> None:
    settings = TranslationConfig.read(overrides=[*SMALL, "model.dropout=0.3"])
    model = new_model(settings.model, SUBWORDS, seed=0)
    sources = SUBWORDS.encode_sources([pair.source for pair in PAIRS[:3]])
    targets = SUBWORDS.encode_targets([pair.target for pair in PAIRS[:3]])
    batch = collate_pairs([EncodedPair(*both) for both in zip(sources, targets, strict=True)], padding=SUBWORDS.padding)

    def loss(consistency: float) -> float:
        objective = TranslationObjective(model, label_smoothing=0.1, padding=SUBWORDS.padding, rdrop_weight=consistency)
        torch.manual_seed(1)
        return float(objective(batch)["loss"].detach())

    torch.manual_seed(1)
    both = batch.twice()
    scores = model.teacher_forced_logits(both.source, both.layout, both.target).detach().chunk(2)
    first, second = (half[batch.target != SUBWORDS.padding].log_softmax(-1) for half in scores)
    one_way = nn.functional.kl_div(second, first, log_target=True, reduction="batchmean")
    other_way = nn.functional.kl_div(first, second, log_target=True, reduction="batchmean")
    assert one_way > 0.01
    assert loss(3.0) - loss(1.0) == pytest.approx(float(one_way + other_way), rel=1e-4)
    model.eval()  # no dropout, so both passes are equal
    assert loss(3.0) == pytest.approx(loss(0.0), rel=1e-5)
