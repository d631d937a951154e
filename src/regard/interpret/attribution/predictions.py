"""The page's view "tasks": predictions of a fine-tuned model for examples, with the evidence for each of them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from regard.data.examples import ChoiceExample, Example, ImageExample, QuestionExample, TaggedExample, TextExample
from regard.data.files import STANDARD_INPUT
from regard.data.readers import TableOptions, split_words
from regard.errors import InputError
from regard.interpret.attention.maps import Floats
from regard.interpret.attention.rollout import rollout
from regard.interpret.attribution.attributions import Attribution, gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import Probe, task_probe
from regard.models.family import family_name
from regard.nn.recording import record
from regard.render.png import data_uri
from regard.render.result import round_floats
from regard.tasks.predict import predict
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


def predict_texts(fine_tuned: FineTunedModel, *texts: str) -> Prediction:
    """The prediction for one text, or for two if the task reads two."""
    example = parse_example(fine_tuned, *texts)
    return predict(fine_tuned, [example], device=next(fine_tuned.model.parameters()).device)[0]


def parse_example(fine_tuned: FineTunedModel, text: str, second: str | None = None) -> Example:
    """One example as a user types it; InputError says what the task reads if that is something else."""
    if fine_tuned.task.reads_images:
        from regard.interpret.images import read_image

        return read_image(os.path.expanduser(text.strip()))
    given = None if fine_tuned.task.reads_plain_text or not (second or "").strip() else second
    if fine_tuned.task.input_hint and given is None:
        raise InputError(fine_tuned.task.input_hint)
    example: Example = fine_tuned.task.example(text, given)
    return example


def predictions_payload(
    name: str,
    fine_tuned: FineTunedModel,
    examples: Sequence[Example],
    predictions: Sequence[Prediction] | None = None,
    *,
    source: str | None = None,
    table: TableOptions | None = None,
    threshold: float | None = None,
    notes: Sequence[str] = (),
    on_done: Callable[[], None] = lambda: None,
) -> dict[str, object]:
    """The data of the view "tasks" for a fine-tuned model in the folder `name`.

    `predictions` for the examples are computed unless given. `source` is the file they come from, or the text itself,
    read with `table` and `threshold`; `on_done` is called after each example.
    """
    if predictions is None:
        predictions = predict(fine_tuned, list(examples), device=next(fine_tuned.model.parameters()).device)
    rows = []
    for example, prediction in zip(examples, predictions, strict=True):
        rows.append(_row(fine_tuned, example, prediction))
        on_done()
    return {
        "view": "tasks",
        "model": {
            "name": name,
            "family": family_name(fine_tuned.model.encoder),
            "task": fine_tuned.task.name,
            "labels": list(fine_tuned.task.labels),
            "several": fine_tuned.task.problem_type == "multi_label_classification",
        },
        "predictions": rows,
        "notes": list(notes),
        "cli": _command(name, examples, source, _options(table if source else None, threshold)),
        "python": _python(name, examples, source, table or TableOptions(), threshold),
    }


def _row(fine_tuned: FineTunedModel, example: Example, prediction: Prediction) -> dict[str, object]:
    evidence: list[object] = []
    why = ""
    try:
        evidence = [round_floats(asdict(one)) for one in gather_evidence(fine_tuned, example, prediction)]
    except InputError as error:
        why = str(error)
    return {
        "texts": _example_texts(example),
        "image": data_uri(example.pixels) if isinstance(example, ImageExample) else None,
        "prediction": prediction,
        "evidence": evidence,
        "why": why,
    }


def _example_texts(example: Example) -> list[str]:
    match example:
        case TextExample(text, second):
            return [text] if second is None else [text, second]
        case TaggedExample(text):
            return [text]
        case QuestionExample(_, question, context):
            return [question, context]
        case ChoiceExample(text, endings):
            return [text, *endings]
        case ImageExample(name=name):
            return [name]


def _record(example: Example) -> Mapping[str, object]:
    """An example as a line of JSON that `regard predict` reads."""
    match example:
        case TextExample(text, None) | TaggedExample(text):
            return {"text": text}
        case TextExample(text, second):
            return {"text_a": text, "text_b": second}
        case QuestionExample(_, question, context):
            return {"question": question, "context": context}
        case ChoiceExample(text, endings):
            return {"ctx": text, "endings": list(endings)}
    raise InputError("an image cannot be written as a line of JSON")


def _options(given: TableOptions | None, threshold: float | None) -> list[str]:
    table = given or TableOptions()
    options = [] if table.columns is None else ["--columns", ",".join(table.columns)]
    if table.header is not None:
        options.append("--header" if table.header else "--no-header")
    if table.delimiter is not None:
        options += ["--delimiter", "\\t" if table.delimiter == "\t" else table.delimiter]
    if table.quoting is not None:
        options.append("--quoted" if table.quoting else "--unquoted")
    return options if threshold is None else [*options, f"--threshold={threshold!r}"]


def _command(name: str, examples: Sequence[Example], source: str | None, options: Sequence[str]) -> str:
    if source is None and len(examples) == 1 and isinstance(examples[0], ImageExample):
        source = examples[0].name
    lines = [shlex.quote(json.dumps(_record(one), ensure_ascii=False)) for one in examples] if source is None else []
    given = STANDARD_INPUT if source is None else source
    plain = ["--", name, given] if given.startswith("-") and given != STANDARD_INPUT else [name, given]
    line = shlex.join(["regard", "predict", *options, "--page", "page.html", *plain])
    return f"printf '%s\\n' {' '.join(lines)} | {line}" if lines else line


def _python(
    name: str, examples: Sequence[Example], source: str | None, table: TableOptions, threshold: float | None
) -> str:
    loading = f"load_fine_tuned({name!r})" + ("" if threshold is None else f".with_threshold({threshold!r})")
    opening = "from regard.tasks.task_folder import load_fine_tuned\n"
    if len(examples) == 1:
        first, *rest = _example_texts(examples[0])
        texts = ", ".join(map(repr, [first, *(["\n".join(rest)] if rest else [])]))
        return (
            f"from regard.interpret.attribution.predictions import predict_texts\n{opening}"
            f"predict_texts({loading}, {texts})"
        )
    if source is None:
        every = [_example_texts(one) for one in examples]
        texts = repr([(first, "\n".join(rest)) if rest else (first,) for first, *rest in every])
        return (
            f"from regard.interpret.attribution.predictions import predict_texts\n{opening}fine_tuned = {loading}\n"
            f"[predict_texts(fine_tuned, *texts) for texts in {texts}]"
        )
    return (
        "from regard.data.readers import TableOptions\nfrom regard.tasks.read_examples import new_examples\n"
        f"{opening}from regard.tasks.predict import predict_stream\n"
        f"fine_tuned = {loading}\n"
        f"examples = new_examples(fine_tuned.task.name, {source!r}, table={table!r})\n"
        "list(predict_stream(fine_tuned, examples, device=next(fine_tuned.model.parameters()).device))"
    )
