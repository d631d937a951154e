"""Component ablation: losses equal those of the rest of the library, for each component and for all together."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.translation.subwords import Subwords
from regard.inference.translation.translator import as_translation_model
from regard.interpret.figure import ablation
from regard.interpret.figure.ablation import (
    ENGLISH,
    PAIRS,
    ablate_components,
    built_in_sentences,
    without_components,
)
from regard.interpret.figure.figure import figure_of
from regard.interpret.figure.figure_model import figure_model_of
from regard.models import Gpt
from regard.nn.masks import Padded
from regard.nn.training import evaluation_mode
from tests.inference.measure import measure_perplexity
from tests.interpret.conftest import translator
from tests.interpret.figure.conftest import FigureCase


def reference(case: FigureCase, found: object) -> float:
    """The loss of the text computed with the library's evaluation functions."""
    if isinstance(case.reader, Subwords):
        model, sentence = as_translation_model(case.model), found.inputs  # type: ignore[attr-defined]
        wanted = torch.tensor([sentence.target_ids])
        scores = model.teacher_forced_logits(torch.tensor([sentence.source_ids]), Padded(), wanted)[0]
        return float(F.cross_entropy(scores, wanted[0]))
    measured = measure_perplexity(case.model, case.reader, case.text)
    return math.log(measured.perplexity)


def test_losses_equal_perplexity_and_cross_entropy(case: FigureCase) -> None:
    found = case.figure()
    with evaluation_mode(case.model):
        assert found.ablation.outcomes[0].loss == pytest.approx(reference(case, found), rel=1e-4)
        if isinstance(case.reader, Subwords):
            with without_components(case.model, ["scaling"]):
                assert found.ablation.find(["scaling"]).loss == pytest.approx(reference(case, found), rel=1e-4)


def test_every_component_alone_and_those_removed_together(case: FigureCase) -> None:
    found = case.figure("residual,positions")
    able = [[], *([name] for name in ("mask", "positions", "scaling", "residual") if name not in found.disabled)]
    assert [one.without for one in found.ablation.outcomes] == [*able, ["positions", "residual"]]
    losses = [one.loss for one in found.ablation.outcomes]
    assert len(set(losses)) == len(losses)
    for one in found.ablation.outcomes:
        known = [math.log(prediction.probability) for prediction in one.predictions if prediction.probability]
        assert one.loss == pytest.approx(-sum(known) / len(known), rel=1e-3)
        assert all(prediction.best[0][1] >= (prediction.probability or 0) - 1e-6 for prediction in one.predictions)


def test_without_ablation_only_removed_components_are_measured(case: FigureCase) -> None:
    assert figure_of(LoadedModel("", case.model, case.reader), case.text, ablation=False).ablation is None
    found = figure_of(
        LoadedModel("", case.model, case.reader), case.text, without=["residual"], ablation=False
    ).ablation
    assert found is not None and [one.without for one in found.outcomes] == [[], ["residual"]]
    assert found.outcomes == [case.figure().ablation.find(names) for names in ([], ["residual"])]


def test_built_in_sentences_are_measured_once(case: FigureCase) -> None:
    subject = figure_model_of(case.model, case.reader)
    known: ablation.LossCache = {}
    pairs = [("the day was good", "der Tag" if isinstance(case.reader, Subwords) else None)]
    with evaluation_mode(case.model):
        sentence = subject.read(case.text, max_tokens=20)
        first = ablate_components(subject, sentence, (), sentences=pairs, max_tokens=20, losses=known)
        alone = subject.read(*pairs[0], max_tokens=20)
        again = ablate_components(subject, alone, (), sentences=pairs, max_tokens=20, losses=dict.fromkeys(known, 7.0))
    # The single built-in sentence, passed as a text, has the loss that was measured over the sentences.
    assert [one.loss for one in again.outcomes] == pytest.approx([one.sentences_loss for one in first.outcomes])
    assert {one.sentences_loss for one in again.outcomes} == {7.0}
    assert known.keys() == {tuple(one.without) for one in first.outcomes}


HERE, OURS = "for this text (from 2.00 to ", "over the 5 built-in sentences (from 4.00 to "


@pytest.mark.parametrize(
    ("loss", "ours", "expected_parts"),
    [
        (1.0, None, ["It falls for this text (from 2.00 to 1.00): this is a leak"]),
        (3.0, None, ["It does not even fall for this text (from 2.00 to 3.00)", "has not learned"]),
        (1.0, 3.5, [f"It falls {HERE}1.00) and {OURS}3.50): this is a leak"]),
        (3.0, 4.5, [f"It does not even fall {HERE}3.00) or {OURS}4.50)", "has not learned"]),
        (3.0, 3.5, [f"It falls {OURS}3.50): this is a leak", f"It does not fall {HERE}3.00): trained with the mask"]),
        (1.0, 4.5, [f"It falls {HERE}1.00): this is a leak", f"It does not fall {OURS}4.50): trained with the mask"]),
    ],
)
def test_remarks_on_a_model_without_a_causal_mask(loss: float, ours: float | None, expected_parts: list[str]) -> None:
    before = ablation.AblationOutcome([], 2.0, None if ours is None else 4.0, "", [])
    (remark,) = ablation._remarks([before, ablation.AblationOutcome(["mask"], loss, ours, "", [])], 5)
    assert all(part in remark for part in ["sees the token that it should predict", *expected_parts])
    assert ("leak" in remark) == ("It falls" in remark) and ("has not learned" in remark) != ("leak" in remark)


def test_without_a_mask_later_tokens_change_earlier_outputs(case: FigureCase) -> None:
    if not isinstance(case.model, Gpt):
        return
    subject = figure_model_of(case.model, case.reader)
    with evaluation_mode(case.model):
        short, long = (subject.read(text, max_tokens=20) for text in ("the film was", "the film was good"))
        assert torch.allclose(subject.run(short)[1], subject.run(long)[1], atol=1e-5)
        with without_components(case.model, ["mask"]):
            assert not torch.allclose(subject.run(short)[1], subject.run(long)[1], atol=1e-2)


def test_languages_of_built_in_sentences(subwords: Subwords) -> None:
    assert built_in_sentences("regard-de-en", translates=True)[0] == (PAIRS["de"][0], PAIRS["en"][0])
    assert built_in_sentences("/tmp/some/fr-en/", translates=True)[1] == (PAIRS["fr"][1], PAIRS["en"][1])
    assert built_in_sentences("regard-de-en-postnorm", translates=True)[0] == (PAIRS["de"][0], PAIRS["en"][0])
    assert built_in_sentences("my-model", translates=True) == built_in_sentences("code-en", translates=True) == []
    assert built_in_sentences("regard-de-en", translates=False) == [(text, None) for text in ENGLISH]
    model = translator(subwords)
    assert figure_of(LoadedModel("x-en-de", model, subwords), "a dog").ablation.outcomes[0].sentences_loss is not None
    assert figure_of(LoadedModel("", model, subwords), "a dog").ablation.outcomes[0].sentences_loss is None
