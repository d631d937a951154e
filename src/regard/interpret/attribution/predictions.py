"""What a tuned model says of examples, with the evidence beside it, as a page takes it: the view "tasks".

Knows the page's names and which line of the command line or Python says the same. Knows no HTML.
"""

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
from regard.tasks.predict import predict
from regard.tasks.task import Prediction
from regard.tasks.task_folder import FineTunedModel

__all__ = ["parse_example", "predict_texts", "predictions_payload"]


def predict_texts(solved: FineTunedModel, *texts: str) -> Prediction:
    """What `regard predict` says of one text, or of two where the task reads two."""
    example = parse_example(solved, *texts)
    return predict(solved, [example], device=next(solved.model.parameters()).device)[0]


def parse_example(solved: FineTunedModel, text: str, second: str | None = None) -> Example:
    """One example as a user types it; InputError says what the task reads where that is something else."""
    if solved.task.reads_images:
        from regard.interpret.images import read_image

        return read_image(os.path.expanduser(text.strip()))
    given = None if solved.task.reads_plain_text or not (second or "").strip() else second
    if solved.task.input_hint and given is None:
        raise InputError(solved.task.input_hint)
    example: Example = solved.task.example(text, given)
    return example


def predictions_payload(
    name: str,
    solved: FineTunedModel,
    examples: Sequence[Example],
    predictions: Sequence[Prediction] | None = None,
    *,
    source: str | None = None,
    table: TableOptions | None = None,
    threshold: float | None = None,
    notes: Sequence[str] = (),
    on_done: Callable[[], None] = lambda: None,
) -> dict[str, object]:
    """The document of the view "tasks" for a tuned model in the folder `name`.

    `predictions` are what `regard predict` said of the examples, where that is known. `source` is the file they come
    from, or the text itself, and `table` and `threshold` are what was said with it; `on_done` is called after each
    example.
    """
    if predictions is None:
        predictions = predict(solved, list(examples), device=next(solved.model.parameters()).device)
    shown = []
    for example, prediction in zip(examples, predictions, strict=True):
        shown.append(_shown(solved, example, prediction))
        on_done()
    return {
        "view": "tasks",
        "model": {
            "name": name,
            "family": family_name(solved.model.encoder),
            "task": solved.task.name,
            "labels": list(solved.task.labels),
            "several": solved.task.problem_type == "multi_label_classification",
        },
        "predictions": shown,
        "notes": list(notes),
        "cli": _command(name, examples, source, _options(table if source else None, threshold)),
        "python": _python(name, examples, source, table or TableOptions(), threshold),
    }


def _shown(solved: FineTunedModel, example: Example, prediction: Prediction) -> dict[str, object]:
    found: list[object] = []
    why = ""
    try:
        found = [round_floats(asdict(one)) for one in gather_evidence(solved, example, prediction)]
    except InputError as error:
        why = str(error)
    return {
        "texts": _texts(example),
        "image": data_uri(example.pixels) if isinstance(example, ImageExample) else None,
        "prediction": prediction,
        "evidence": found,
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
    raise InputError("a picture is no line of JSON")


def _options(given: TableOptions | None, threshold: float | None) -> list[str]:
    table = given or TableOptions()
    found = [] if table.columns is None else ["--columns", ",".join(table.columns)]
    if table.header is not None:
        found.append("--header" if table.header else "--no-header")
    if table.delimiter is not None:
        found += ["--delimiter", "\\t" if table.delimiter == "\t" else table.delimiter]
    if table.quoting is not None:
        found.append("--quoted" if table.quoting else "--unquoted")
    return found if threshold is None else [*found, f"--threshold={threshold!r}"]


def _command(name: str, examples: Sequence[Example], source: str | None, options: Sequence[str]) -> str:
    if source is None and len(examples) == 1 and isinstance(examples[0], ImageExample):
        source = examples[0].name
    said = [shlex.quote(json.dumps(_record(one), ensure_ascii=False)) for one in examples] if source is None else []
    given = STANDARD_INPUT if source is None else source
    plain = ["--", name, given] if given.startswith("-") and given != STANDARD_INPUT else [name, given]
    line = shlex.join(["regard", "predict", *options, "--page", "page.html", *plain])
    return f"printf '%s\\n' {' '.join(said)} | {line}" if said else line


def _python(
    name: str, examples: Sequence[Example], source: str | None, table: TableOptions, threshold: float | None
) -> str:
    solved = f"load_fine_tuned({name!r})" + ("" if threshold is None else f".with_threshold({threshold!r})")
    opening = "from regard.tasks.task_folder import load_fine_tuned\n"
    if len(examples) == 1:
        first, *rest = _texts(examples[0])
        said = ", ".join(map(repr, [first, *(["\n".join(rest)] if rest else [])]))
        return (
            f"from regard.interpret.attribution.predictions import predict_texts\n{opening}"
            f"predict_texts({solved}, {said})"
        )
    if source is None:
        texts = [_texts(one) for one in examples]
        said = repr([(first, "\n".join(rest)) if rest else (first,) for first, *rest in texts])
        return (
            f"from regard.interpret.attribution.predictions import predict_texts\n{opening}solved = {solved}\n"
            f"[predict_texts(solved, *texts) for texts in {said}]"
        )
    return (
        "from regard.data.readers import TableOptions\nfrom regard.tasks.read_examples import new_examples\n"
        f"{opening}from regard.tasks.predict import predict_stream\n"
        f"solved = {solved}\n"
        f"examples = new_examples(solved.task.name, {source!r}, table={table!r})\n"
        "list(predict_stream(solved, examples, device=next(solved.model.parameters()).device))"
    )
