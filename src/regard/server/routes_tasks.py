"""The view of fine-tuned models: their predictions."""

from __future__ import annotations

import os

from regard.events import drain
from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, text_argument
from regard.server.routes_training import training_options
from regard.server.studio import Studio
from regard.verbs import find


def tasks(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, and `text_b` when the task reads two."""
    model = text_argument(arguments, "model", DEFAULT_MODEL)
    text, second = text_argument(arguments, "text"), text_argument(arguments, "text_b", "")
    # The exported page has no server that could train.
    options = {} if "place" in arguments else {"studio": training_options(studio)}
    entry = studio.models.entries.get(model)
    if entry is not None and entry.state != "failed" and entry.kind != "tuned":
        return {**_not_fine_tuned(model), **options}
    with studio.models.use(model):
        fine_tuned = studio.models.fine_tuned(model)
    images, wanted = fine_tuned.tokenizer is None, fine_tuned.task.input_hint
    if images:
        text = str(studio.workspace.readable(text.strip()))
    if wanted and not (os.path.isfile(text) if images else second.strip()):
        from regard.interpret.attribution.predictions import predict_result

        return {**predict_result(model, fine_tuned, notes=[wanted]).page_data(), **options}
    source = text if images else [(text, second) if second.strip() else text]
    request = find("predict").parse({"model": model, "source": source, "evidence": True})
    return {**drain(find("predict").run(request, studio.models)).page_data(), **options}


def _not_fine_tuned(model: str) -> Payload:
    return {
        "view": "tasks",
        "model": None,
        "predictions": [],
        "notes": [f"{model} was pretrained and not tuned for a task: it has no classes, tags or answers to give."],
        "cli": "regard train classify --train FILE --output DIR",
        "python": "import regard\nregard.train('classify', train='FILE', output='DIR')",
    }
