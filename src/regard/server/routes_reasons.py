"""The page's views of ablation and faithfulness: the verbs' data, and what only a studio can offer beside it."""

from __future__ import annotations

import os
from pathlib import Path

from regard.errors import InputError
from regard.files.json_files import read_json
from regard.known import DEFAULT
from regard.server.arguments import Arguments, Payload, said
from regard.server.model_registry import ModelRegistry
from regard.server.verbs import answer
from regard.verbs import find

__all__ = ["ablation", "faithfulness"]

# A text that a pretrained BERT can be probed with.
EXAMPLE_WITH_BLANK = "Thank you so much, this is the _ help I ever got in New York."


def ablation(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """The arguments of `regard ablate`; `at` is auto unless given."""
    given = {**_fields("ablate", arguments), "at": said(arguments, "at", "").strip() or "auto"}
    return {**answer(registry, "ablate", given).page_data(), **_live(registry, arguments)}


def faithfulness(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """The arguments of `regard faithfulness`."""
    given = {"model": DEFAULT, **_fields("faithfulness", arguments)}
    model = str(given["model"])
    try:
        payload = answer(registry, "faithfulness", given).page_data()
    except InputError as error:
        if model not in registry.entries or registry.entries[model].kind not in ("reader", "writer"):
            raise
        payload = _pretrained_payload(registry, model, said(arguments, "text"), str(error))
    return {**payload, **_live(registry, arguments)}


def _fields(verb: str, arguments: Arguments) -> dict[str, object]:
    said(arguments, "text")  # an empty text is refused in the page's words
    return {name: value for name, value in arguments.items() if name in find(verb).request.model_fields}


def _pretrained_payload(registry: ModelRegistry, model: str, text: str, why: str) -> dict[str, object]:
    """The view for a pretrained model that predicts nothing for this text, with the reason and a text that works."""
    from regard.interpret.attribution.probe import pretrained_probe

    example: Payload | None = {"model": model, "text": EXAMPLE_WITH_BLANK}
    with registry.use(model) as pair:
        try:
            pretrained_probe(*pair, EXAMPLE_WITH_BLANK)
        except InputError:
            example = None
    return {
        "view": "faithfulness",
        "model": None,
        "texts": [text],
        "asked": {"label": None, "layer": None, "head": None},
        "grounds": None,
        "verdict": None,
        "notes": [
            f"{model} is pretrained and not fine-tuned for a task: it has no classes, so there is no verdict.",
            f"The evidence for one of its predicted words is not available either: {why}",
        ],
        "example": example,
        "cli": "regard train classify --train FILE --output DIR",
        "python": "import regard\nregard.fit('classify', 'FILE', output='DIR')",
    }


def _live(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """What only a studio can do: the exported page, which is asked for with its place, has no server."""
    if "place" in arguments:
        return {}
    entries = registry.entries.values()
    return {"studio": {"tuned": [one.name for one in entries if one.kind == "tuned" and _classifies(one.name)]}}


def _classifies(name: str) -> bool:
    """By what its folder says; one that has vanished may."""
    try:
        document = read_json(Path(os.path.expanduser(name)) / "task.json")
    except InputError:
        return True
    return document.get("task") in ("classify", "pair")
