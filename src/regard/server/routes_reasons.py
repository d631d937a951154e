"""The page's views of ablation and faithfulness: the verbs' data, and what only a studio can offer beside it."""

from __future__ import annotations

import os
from pathlib import Path

from regard.errors import InputError
from regard.files.json_files import read_json
from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, text_argument
from regard.server.studio import Studio
from regard.server.verbs import answer
from regard.verbs import find

# A text that a pretrained BERT can be probed with.
EXAMPLE_WITH_BLANK = "Thank you so much, this is the _ help I ever got in New York."


def ablation(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `text_b`, `heads`, `layers`, `at` (auto unless given), `top`, `sweep`."""
    given = {**_fields("ablate", arguments), "at": text_argument(arguments, "at", "").strip() or "auto"}
    return {**answer(studio.models, "ablate", given).page_data(), **_live(studio, arguments)}


def faithfulness(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `text_b`, `label`, `layer`, `head`, `seed`."""
    given = {"model": DEFAULT_MODEL, **_fields("faithfulness", arguments)}
    model = str(given["model"])
    try:
        payload = answer(studio.models, "faithfulness", given).page_data()
    except InputError as error:
        if model not in studio.models.entries or studio.models.entries[model].kind not in ("reader", "writer"):
            raise
        payload = _pretrained_payload(studio, model, text_argument(arguments, "text"), str(error))
    return {**payload, **_live(studio, arguments)}


def _fields(verb: str, arguments: Arguments) -> dict[str, object]:
    text_argument(arguments, "text")  # an empty text is refused in the page's words
    return {name: value for name, value in arguments.items() if name in find(verb).request.model_fields}


def _pretrained_payload(studio: Studio, model: str, text: str, why: str) -> dict[str, object]:
    """The view for a pretrained model that predicts nothing for this text, with the reason and a text that works."""
    from regard.interpret.attribution.probe import probe_model

    example: Payload | None = {"model": model, "text": EXAMPLE_WITH_BLANK}
    with studio.models.use_text_model(model) as loaded:
        try:
            probe_model(loaded, EXAMPLE_WITH_BLANK)
        except InputError:
            example = None
    return {
        "view": "faithfulness",
        "model": None,
        "texts": [text],
        "request": {"label": None, "layer": None, "head": None},
        "evidence": None,
        "verdict": None,
        "notes": [
            f"{model} is pretrained and not fine-tuned for a task: it has no classes, so there is no verdict.",
            f"The evidence for one of its predicted words is not available either: {why}",
        ],
        "example": example,
        "cli": "regard train classify --train FILE --output DIR",
        "python": "import regard\nregard.train('classify', train='FILE', output='DIR')",
    }


def _live(studio: Studio, arguments: Arguments) -> Payload:
    """Data that only a running studio has: an exported page, requested with `place`, has no server."""
    if "place" in arguments:
        return {}
    entries = studio.models.entries.values()
    return {"studio": {"tuned": [one.name for one in entries if one.kind == "tuned" and _classifies(one.name)]}}


def _classifies(name: str) -> bool:
    """Whether the model folder has a classification task; assumed when the folder has disappeared."""
    try:
        document = read_json(Path(os.path.expanduser(name)) / "task.json")
    except InputError:
        return True
    return "several" in document  # classification tasks have it
