"""Why a fine-tuned model predicts what it predicts for one example: attention and attributions of its outputs.

L layers, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.examples import Example, QuestionExample, TaggedExample, TextExample
from regard.data.readers import split_words
from regard.errors import InputError
from regard.interpret.attention.rollout import rollout
from regard.interpret.attribution.attributions import Attribution, gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import Probe, task_probe
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


def gather_evidence(fine_tuned: FineTunedModel, example: Example, prediction: Prediction) -> list[Evidence]:
    """Evidence for the first outputs of a prediction: its labels, its entities, the ends of its answer.

    InputError if the model or the example cannot be explained: an image, an LSTM, a text that is split or truncated.
    """
    probe = task_probe(fine_tuned, *_texts(example))
    item = fine_tuned.task.preprocess([example], fine_tuned.input_builder)[0]
    explained = _explained_outputs(probe, example, prediction, item)[:MAX_OUTPUTS]
    if not explained:
        return []
    maps = probe.attention()
    rolled_out = rollout(maps)[-1]
    tokens = tuple(map(probe.token_text, probe.ids.tolist()))
    evidence = []
    for about, target, output in explained:
        position = probe.position_of(target, output)
        evidence.append(
            Evidence(
                about=about,
                token=position,
                tokens=tokens,
                special=probe.special,
                attention=tuple(tuple(layer) for layer in maps[:, :, position].mean(1).tolist()),
                rollout=tuple(rolled_out[position].tolist()),
                integrated=integrated_gradients(probe, target=target, output=output),
                gradient=gradient_times_input(probe, target=target, output=output),
            )
        )
    return evidence


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


def _explained_outputs(
    probe: Probe, example: Example, prediction: Prediction, item: TaskInput
) -> list[tuple[str, int, int]]:
    """A description, and the indices of the probe's target and output, for each output to explain."""
    if isinstance(example, TaggedExample):
        return _entities(probe, example, prediction, item)
    if isinstance(example, QuestionExample):
        return _ends(probe, prediction, item)
    if "value" in prediction:
        return [("value", 0, 0)]
    predicted, probabilities = prediction["label"], prediction["probabilities"]
    order = probabilities.__getitem__
    names = [predicted] if isinstance(predicted, str) else sorted(predicted, key=order, reverse=True)
    return [(name, 0, probe.output_index(name)) for name in names or [max(probabilities, key=order)]]


def _entities(
    probe: Probe, example: TaggedExample, prediction: Prediction, item: TaskInput
) -> list[tuple[str, int, int]]:
    """The first word of each entity."""
    words = {start: word for word, (start, _) in enumerate(example.words)}
    outputs = []
    for entity in prediction["entities"]:
        word = words[entity["start"]]
        if word in item.extra:
            tag, (start, end) = prediction["tags"][word], example.words[word]
            about = f"{tag} at {example.text[start:end]}"
            outputs.append((about, item.extra.index(word), probe.output_index(tag)))
    return outputs


def _ends(probe: Probe, prediction: Prediction, item: TaskInput) -> list[tuple[str, int, int]]:
    """The tokens where the answer starts and ends; the first token if there is none."""
    window = item.extra
    inside = [
        window.first + token
        for token, (start, end) in enumerate(window.offsets)
        if start < prediction["end"] and end > prediction["start"]
    ] or [0]
    ends = ((0, "start", inside[0]), (1, "end", inside[-1]))
    return [(f"{name} at {probe.token_text(int(probe.ids[token]))}", index, token) for index, name, token in ends]
