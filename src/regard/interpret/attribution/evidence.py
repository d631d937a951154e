"""Why a fine-tuned model predicts what it predicts for one example: attention and attributions of its outputs.

L layers, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from regard.data.examples import Example, QuestionExample, TaggedExample, TextExample
from regard.data.readers import split_words
from regard.errors import InputError
from regard.interpret.attention.maps import Floats
from regard.interpret.attention.rollout import rollout
from regard.interpret.attribution.attributions import Attribution, gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import Probe, task_probe
from regard.nn.recording import record
from regard.tasks.task import Prediction, TaskInput
from regard.tasks.task_folder import FineTunedModel

MAX_OUTPUTS = 4  # outputs of one example that are explained


@dataclass(frozen=True)
class Evidence:
    """The evidence for one output: `about` names it, `token` is the position it is read from.

    `attention` (L, T) is the attention of that position in each layer, averaged over the heads; `rollout` (T,) is the
    attention rollout through all layers. `integrated` and `gradient` are attributions of the output's logit.
    """

    about: str
    token: int
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    attention: tuple[tuple[float, ...], ...]
    rollout: tuple[float, ...]
    integrated: Attribution
    gradient: Attribution


class EvidenceTarget(NamedTuple):
    """An output to explain: its name, the probe's target and output, and the position it is read from."""

    about: str
    target: int
    output: str
    token: int


def gather_evidence(fine_tuned: FineTunedModel, example: Example, prediction: Prediction) -> list[Evidence]:
    """Evidence for the first outputs of a prediction: its labels, its entities, the ends of its answer.

    InputError if the model or the example cannot be explained: an image, an LSTM, a text that is split or truncated.
    """
    probe = task_probe(fine_tuned, *_texts(example))
    item = fine_tuned.task.preprocess([example], fine_tuned.input_builder)[0]
    if probe.task == "answer":  # a token may occur twice, its index cannot
        probe = replace(probe, outputs=tuple(map(str, range(len(probe.ids)))))
    outputs = OUTPUTS[probe.task](example, prediction, item, probe)[:MAX_OUTPUTS]
    if not outputs:
        return []
    maps = _maps(probe)
    rolled_out = rollout(maps)[-1]
    tokens = tuple(map(probe.token_text, probe.ids.tolist()))
    return [
        Evidence(
            about=one.about,
            token=one.token,
            tokens=tokens,
            special=probe.special,
            attention=tuple(tuple(layer) for layer in maps[:, :, one.token].mean(1).tolist()),
            rollout=tuple(rolled_out[one.token].tolist()),
            integrated=integrated_gradients(probe, target=one.target, output=one.output),
            gradient=gradient_times_input(probe, target=one.target, output=one.output),
        )
        for one in outputs
    ]


def _texts(example: Example) -> tuple[str, str | None]:
    match example:
        case TextExample(text, second):
            return text, second
        case QuestionExample(_, question, context):
            return question, context
        case TaggedExample(text, words):
            if tuple(split_words(text)) != words:
                raise InputError("the file has its own words, and evidence is for those that Regard finds in a text")
            return text, None
    raise InputError(f"evidence is for texts, pairs, tags and answers, not for a {type(example).__name__.lower()}")


def _labels(example: Example, prediction: Prediction, item: TaskInput, probe: Probe) -> list[EvidenceTarget]:
    """Every predicted label; if there is none, the likeliest."""
    predicted, probabilities = prediction["label"], prediction["probabilities"]
    order = probabilities.__getitem__
    names = [predicted] if isinstance(predicted, str) else sorted(predicted, key=order, reverse=True)
    return [EvidenceTarget(name, 0, name, _summary(item)) for name in names or [max(probabilities, key=order)]]


def _value(example: Example, prediction: Prediction, item: TaskInput, probe: Probe) -> list[EvidenceTarget]:
    return [EvidenceTarget("value", 0, probe.outputs[0], _summary(item))]


def _entities(example: Example, prediction: Prediction, item: TaskInput, probe: Probe) -> list[EvidenceTarget]:
    """The first word of each entity."""
    assert isinstance(example, TaggedExample)
    positions = item.sequences[0].positions
    assert positions is not None
    starts = {start: word for word, (start, _) in enumerate(example.words)}
    targets = []
    for entity in prediction["entities"]:
        word = starts[entity["start"]]
        if word in item.extra:
            index = item.extra.index(word)
            tag, (start, end) = prediction["tags"][word], example.words[word]
            targets.append(EvidenceTarget(f"{tag} at {example.text[start:end]}", index, tag, positions[index]))
    return targets


def _ends(example: Example, prediction: Prediction, item: TaskInput, probe: Probe) -> list[EvidenceTarget]:
    """The tokens where the answer starts and ends; the first token if there is none."""
    window = item.extra
    inside = [
        window.first + token
        for token, (start, end) in enumerate(window.offsets)
        if start < prediction["end"] and end > prediction["start"]
    ] or [0]
    ends = ((0, "start", inside[0]), (1, "end", inside[-1]))
    return [
        EvidenceTarget(f"{name} at {probe.token_text(int(probe.ids[token]))}", index, str(token), token)
        for index, name, token in ends
    ]


OUTPUTS: dict[str, Callable[[Example, Prediction, TaskInput, Probe], list[EvidenceTarget]]] = {
    "classify": _labels,
    "pair": _labels,
    "regress": _value,
    "tag": _entities,
    "answer": _ends,
}


def _summary(item: TaskInput) -> int:
    """The position whose state stands for the whole text."""
    positions = item.sequences[0].positions
    assert positions is not None
    return positions[0]


def _maps(probe: Probe) -> Floats:
    """(L, H, T, T)."""
    with probe.evaluation_mode(), record(probe.encoder) as tape:
        probe.logits()
        maps = torch.stack([layer[0] for layer in tape.attention("self")])
    return maps.float().cpu().numpy().astype(np.float32)
