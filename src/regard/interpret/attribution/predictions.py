"""The page's view "tasks": predictions of a fine-tuned model for examples, with the evidence for each of them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from regard.data.examples import ChoiceExample, Example, ImageExample, QuestionExample, TaggedExample, TextExample
from regard.data.files import STANDARD_INPUT
from regard.data.readers import TableOptions
from regard.errors import InputError
from regard.interpret.attribution.evidence import gather_evidence
from regard.models.family import family_name
from regard.render.png import data_uri
from regard.render.result import round_floats
from regard.tasks.fine_tuned_model import FineTunedModel, predict
from regard.tasks.task import Prediction


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
        "texts": _texts(example),
        "image": data_uri(example.pixels) if isinstance(example, ImageExample) else None,
        "prediction": prediction,
        "evidence": evidence,
        "why": why,
    }


def _texts(example: Example) -> list[str]:
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
    opening = "from regard.tasks.fine_tuned_model import load_fine_tuned\n"
    if len(examples) == 1:
        first, *rest = _texts(examples[0])
        texts = ", ".join(map(repr, [first, *(["\n".join(rest)] if rest else [])]))
        return (
            f"from regard.interpret.attribution.predictions import predict_texts\n{opening}"
            f"predict_texts({loading}, {texts})"
        )
    if source is None:
        every = [_texts(one) for one in examples]
        texts = repr([(first, "\n".join(rest)) if rest else (first,) for first, *rest in every])
        return (
            f"from regard.interpret.attribution.predictions import predict_texts\n{opening}fine_tuned = {loading}\n"
            f"[predict_texts(fine_tuned, *texts) for texts in {texts}]"
        )
    return (
        "from regard.data.readers import TableOptions\nfrom regard.tasks.registry import new_examples\n"
        f"{opening}from regard.tasks.fine_tuned_model import predict_stream\n"
        f"fine_tuned = {loading}\n"
        f"examples = new_examples(fine_tuned.task.name, {source!r}, table={table!r})\n"
        "list(predict_stream(fine_tuned, examples, device=next(fine_tuned.model.parameters()).device))"
    )
