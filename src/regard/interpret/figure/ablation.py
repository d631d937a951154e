"""What a switch costs: how likely the model finds the right words and what it says, before and after.

Knows a subject and the switches. Knows no tensor of the figure and no page. Losses are means of -ln p, in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from regard.interpret.figure.figure_model import FigureInput, FigureModel
from regard.interpret.figure.switches import COMPONENTS, missing_components, without_components

__all__ = ["AblationOutcome", "ComponentAblation", "LossCache", "TokenPrediction", "ablate_components"]

LossCache: TypeAlias = dict[tuple[str, ...], float | None]  # switches that are off, to the loss over our own sentences

BEST = 3  # words that are told of each place


@dataclass(frozen=True)
class TokenPrediction:
    """One token that was asked for: itself, None at a blank, its probability, and the likeliest tokens."""

    token: str | None
    probability: float | None
    best: tuple[tuple[str, float], ...]

    def document(self) -> dict[str, object]:
        return {"token": self.token, "probability": self.probability, "best": [list(one) for one in self.best]}


@dataclass(frozen=True)
class AblationOutcome:
    """With some switches off: the loss of the text, of the sentences of our own, and what the model says."""

    without: tuple[str, ...]
    loss: float | None
    sentences_loss: float | None
    says: str
    places: tuple[TokenPrediction, ...]

    def document(self) -> dict[str, object]:
        return {
            "without": list(self.without),
            "loss": self.loss,
            "sentences_loss": self.sentences_loss,
            "says": self.says,
            "places": [place.document() for place in self.places],
        }


@dataclass(frozen=True)
class ComponentAblation:
    """The whole model first, then each switch alone, then all that are off together where those are several."""

    measure: str
    outcomes: tuple[AblationOutcome, ...]
    sentences: tuple[tuple[str, str | None], ...]
    remarks: tuple[str, ...]

    def of(self, switches: Sequence[str]) -> AblationOutcome:
        return next(one for one in self.outcomes if set(one.without) == set(switches))

    def document(self) -> dict[str, object]:
        return {
            "measure": self.measure,
            "outcomes": [one.document() for one in self.outcomes],
            "sentences": [list(pair) for pair in self.sentences],
            "remarks": list(self.remarks),
        }


def ablate_components(
    subject: FigureModel,
    sentence: FigureInput,
    off: Sequence[str],
    *,
    sentences: Sequence[tuple[str, str | None]],
    limit: int,
    known: LossCache | None = None,
) -> ComponentAblation:
    """Of every switch the model has, alone, and of those that are `off`; over the sentence and over others.

    `known` are losses over the others that were measured before, and is filled with what is measured now.
    """
    gone = missing_components(subject.model)
    chosen: list[tuple[str, ...]] = [(), *((name,) for name in COMPONENTS if name not in gone)]
    if len(off) > 1:
        chosen.append(tuple(off))
    known = {} if known is None else known
    for switches in chosen:
        if switches not in known:
            others = [subject.read(text, target, limit=limit) for text, target in sentences]
            known[switches] = _mean_loss(subject, others, switches)
    outcomes = tuple(_outcome(subject, sentence, switches, known[switches]) for switches in chosen)
    return ComponentAblation(subject.measure, outcomes, tuple(sentences), tuple(_remarks(outcomes, len(sentences))))


def _mean_loss(subject: FigureModel, others: Sequence[FigureInput], off: tuple[str, ...]) -> float | None:
    with without_components(subject.model, off):
        losses = [loss for one in others if (loss := _loss(*subject.asked(one))) is not None]
    return sum(losses) / len(losses) if losses else None


def _outcome(
    subject: FigureModel, sentence: FigureInput, off: tuple[str, ...], others: float | None
) -> AblationOutcome:
    with without_components(subject.model, off):
        logits, wanted = subject.asked(sentence)
        says = subject.says(sentence, logits)
    shares = logits.float().softmax(-1)
    likeliest = shares.topk(min(BEST, shares.shape[-1]))
    places = []
    for number, token in enumerate(wanted):
        best = zip(likeliest.indices[number].tolist(), likeliest.values[number].tolist(), strict=True)
        places.append(
            TokenPrediction(
                None if token is None else subject.word(token),
                None if token is None else float(shares[number, token]),
                tuple((subject.word(one), share) for one, share in best),
            )
        )
    return AblationOutcome(off, _loss(logits, wanted), others, says, tuple(places))


def _loss(logits: Tensor, wanted: Sequence[int | None]) -> float | None:
    """The mean over what is known to be right; None where nothing is."""
    known = [(place, token) for place, token in enumerate(wanted) if token is not None]
    if not known:
        return None
    places, tokens = (torch.tensor(column, device=logits.device) for column in zip(*known, strict=True))
    return float(-logits.double().log_softmax(-1)[places, tokens].mean())


def _remarks(outcomes: Sequence[AblationOutcome], count: int) -> list[str]:
    """What a reader must know about the numbers of a model that sees what it should say; `count` sentences are ours."""
    whole = outcomes[0]
    alone = next((one for one in outcomes if one.without == ("mask",)), None)
    if alone is None:
        return []
    ours = f"over the {count} sentences of ours" if count > 1 else "over the sentence of ours"
    losses = [("for this text", whole.loss, alone.loss), (ours, whole.sentences_loss, alone.sentences_loss)]
    fallen: list[str] = []
    kept: list[str] = []
    for name, before, after in losses:
        if before is not None and after is not None:
            (fallen if after < before else kept).append(f"{name} (from {before:.2f} to {after:.2f})")
    if not fallen and not kept:
        return []
    told = [f"It falls {' and '.join(fallen)}: that is a leak and no gain."] if fallen else []
    if kept and fallen:
        told.append(f"It does not fall {kept[0]}: trained with the mask, the model makes little of what comes later.")
    elif kept:
        told.append(
            f"It does not even fall {' or '.join(kept)}: the model was trained with the mask and has not learnt to use "
            "what comes later."
        )
    seen = (
        "Without the mask every place but the last sees the very token it should say: the loss measures no prediction."
    )
    return [" ".join([seen, *told])]
