"""Why a tuned model said what it said of one example: where it looked, and which tokens spoke for or against it.

Knows which numbers of a task a prediction stands on, and asks for their attention and attributions. Knows no pages.

L layers, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from regard.data.examples import Example, Question, Tagged, Text
from regard.data.readers import words_of
from regard.errors import InputError
from regard.interpret.attention.maps import Floats
from regard.interpret.attention.rollout import rollout
from regard.interpret.attribution.gradients import Attribution, gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import Probe, task_probe
from regard.nn.recording import record
from regard.tasks.base import Item, Prediction
from regard.tasks.folder import Solved

__all__ = ["MAX_OUTPUTS", "PredictionEvidence", "prediction_evidence"]

MAX_OUTPUTS = 4  # numbers of one example that are looked into


@dataclass(frozen=True)
class PredictionEvidence:
    """Of one number of a prediction: `about` names it, `token` is the place it is read from.

    `attention` (L, T) is what that place looks at in each layer, the mean of the heads; `rollout` (T,) what all layers
    together bring it of each token. `integrated` and `gradient` are attributions of the number's logit.
    """

    about: str
    token: int
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    attention: tuple[tuple[float, ...], ...]
    rollout: tuple[float, ...]
    integrated: Attribution
    gradient: Attribution

    def document(self) -> dict[str, object]:
        return {
            "about": self.about,
            "token": self.token,
            "tokens": list(self.tokens),
            "special": list(self.special),
            "attention": [_rounded(layer) for layer in self.attention],
            "rollout": _rounded(self.rollout),
            "integrated": {**self.integrated.document(), "scores": _rounded(self.integrated.scores)},
            "gradient": {**self.gradient.document(), "scores": _rounded(self.gradient.scores)},
        }


class EvidenceTarget(NamedTuple):
    """A number: its name for people, the trial's place and output, and the token it is read from."""

    about: str
    place: int
    output: str
    token: int


def prediction_evidence(
    solved: Solved, example: Example, prediction: Prediction, *, most: int = MAX_OUTPUTS
) -> list[PredictionEvidence]:
    """For the first `most` numbers that a prediction stands on: its labels, its entities, the ends of its answer.

    InputError where a model or an example cannot be looked into: a picture, an LSTM, a text that is read in several
    parts or cut.
    """
    trial = task_probe(solved, *_texts(example))
    item = solved.task.items([example], solved.rows)[0]
    if trial.task == "answer":  # a token may stand there twice, its number does not
        trial = replace(trial, outputs=tuple(map(str, range(len(trial.ids)))))
    asked = ASKED[trial.task](example, prediction, item, trial)[:most]
    if not asked:
        return []
    maps = _maps(trial)
    joined = rollout(maps)[-1]
    tokens = tuple(map(trial.token_text, trial.ids.tolist()))
    return [
        PredictionEvidence(
            about=one.about,
            token=one.token,
            tokens=tokens,
            special=trial.special,
            attention=tuple(tuple(layer) for layer in maps[:, :, one.token].mean(1).tolist()),
            rollout=tuple(joined[one.token].tolist()),
            integrated=integrated_gradients(trial, place=one.place, output=one.output),
            gradient=gradient_times_input(trial, place=one.place, output=one.output),
        )
        for one in asked
    ]


def _texts(example: Example) -> tuple[str, str | None]:
    match example:
        case Text(text, second):
            return text, second
        case Question(_, question, context):
            return question, context
        case Tagged(text, words):
            if tuple(words_of(text)) != words:
                raise InputError("the file has its own words, and evidence is for those that Regard finds in a text")
            return text, None
    raise InputError(f"evidence is for texts, pairs, tags and answers, not for a {type(example).__name__.lower()}")


def _labels(example: Example, prediction: Prediction, item: Item, trial: Probe) -> list[EvidenceTarget]:
    """Every label that is said; where there is none, the likeliest."""
    said, shares = prediction["label"], prediction["probabilities"]
    names = [said] if isinstance(said, str) else sorted(said, key=shares.__getitem__, reverse=True)
    return [EvidenceTarget(name, 0, name, _speaker(item)) for name in names or [max(shares, key=shares.__getitem__)]]


def _value(example: Example, prediction: Prediction, item: Item, trial: Probe) -> list[EvidenceTarget]:
    return [EvidenceTarget("value", 0, trial.outputs[0], _speaker(item))]


def _entities(example: Example, prediction: Prediction, item: Item, trial: Probe) -> list[EvidenceTarget]:
    """The first word of each entity."""
    assert isinstance(example, Tagged)
    places = item.rows[0].places
    assert places is not None
    starts = {start: word for word, (start, _) in enumerate(example.words)}
    found = []
    for entity in prediction["entities"]:
        word = starts[entity["start"]]
        if word in item.note:
            place = item.note.index(word)
            tag, (start, end) = prediction["tags"][word], example.words[word]
            found.append(EvidenceTarget(f"{tag} at {example.text[start:end]}", place, tag, places[place]))
    return found


def _ends(example: Example, prediction: Prediction, item: Item, trial: Probe) -> list[EvidenceTarget]:
    """The tokens where the answer starts and ends; the first token where there is none."""
    window = item.note
    inside = [
        window.first + token
        for token, (start, end) in enumerate(window.offsets)
        if start < prediction["end"] and end > prediction["start"]
    ] or [0]
    ends = ((0, "start", inside[0]), (1, "end", inside[-1]))
    return [
        EvidenceTarget(f"{name} at {trial.token_text(int(trial.ids[token]))}", place, str(token), token)
        for place, name, token in ends
    ]


ASKED: dict[str, Callable[[Example, Prediction, Item, Probe], list[EvidenceTarget]]] = {
    "classify": _labels,
    "pair": _labels,
    "regress": _value,
    "tag": _entities,
    "answer": _ends,
}


def _speaker(item: Item) -> int:
    places = item.rows[0].places
    assert places is not None
    return places[0]


def _maps(trial: Probe) -> Floats:
    """(L, H, T, T)."""
    with trial.evaluating(), record(trial.encoder) as tape:
        trial.logits()
        found = torch.stack([layer[0] for layer in tape.attention("self")])
    return found.float().cpu().numpy().astype(np.float32)


def _rounded(values: tuple[float, ...]) -> list[float]:
    """Six figures: more than a page shows, and less than half the bytes."""
    return [float(f"{value:.6g}") for value in values]
