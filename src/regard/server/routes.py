"""One function per view, from the arguments sent by the page to the payload it shows; independent of HTTP."""

from __future__ import annotations

from regard.known import DEFAULT_MODEL
from regard.server import (
    routes_attention,
    routes_generation,
    routes_reasons,
    routes_tasks,
    routes_training,
    routes_translation,
)
from regard.server.arguments import Arguments, Payload, Route, text_argument
from regard.server.streaming import Stream
from regard.server.studio import Studio
from regard.server.verbs import answer
from regard.verbs import find

MAX_ROWS = 300_000  # all lines that a client can send
MAX_FEATURES = 500  # texts: each is embedded with and without a mask


def compare(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `a`, `b` for two sentences, `model`, and `other` for a second model."""
    given = {"text": text_argument(arguments, "a"), "model": text_argument(arguments, "model", DEFAULT_MODEL)}
    optional = {"text_b": text_argument(arguments, "b", ""), "other": text_argument(arguments, "other", "").strip()}
    return answer(studio.models, "compare", {**given, **optional}).page_data()


def heads(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `texts`, one per line, and `model`."""
    given = {"text": text_argument(arguments, "texts"), "model": text_argument(arguments, "model", DEFAULT_MODEL)}
    return answer(studio.models, "heads", given).page_data()


def figure(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `target` for a translator, and `without`, such as "mask,scaling"."""
    given = {
        "model": text_argument(arguments, "model", DEFAULT_MODEL),
        "text": text_argument(arguments, "text"),
        "target": text_argument(arguments, "target", ""),
        "without": [name.strip() for name in text_argument(arguments, "without", "").split(",") if name.strip()],
    }
    # Only in the studio is there a model that could run again without other parts.
    return {**answer(studio.models, "figure", given).page_data(), "studio": "place" not in arguments}


def senses(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `word`, and `texts`, one per line."""
    texts = text_argument(arguments, "texts", limit=find("senses").max_characters)
    given = {"word": text_argument(arguments, "word"), "texts": texts}
    return answer(studio.models, "senses", {**_select(arguments, "model"), **given}).page_data()


def sentence_map(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `texts` (one per line, with or without a label), `layer`, `pooling`, `neighbors`."""
    given = _select(arguments, "model", "texts", "layer", "pooling", "neighbors")
    return answer(studio.models, "map", given).page_data()


def features(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `texts` (one per line, each with a label), `layer`, `pooling`."""
    data = {"data": arguments.get("texts", ""), "rows": MAX_ROWS, "limit": MAX_FEATURES}
    return answer(studio.models, "features", {**_select(arguments, "model", "layer", "pooling"), **data}).page_data()


def _select(arguments: Arguments, *names: str) -> dict[str, object]:
    return {name: arguments[name] for name in names if name in arguments}


ROUTES: dict[str, Route] = {
    "senses": senses,
    "map": sentence_map,
    "features": features,
    "attention": routes_attention.attention,
    "compare": compare,
    "heads": heads,
    "figure": figure,
    "tasks": routes_tasks.tasks,
    "generation": routes_generation.generation,
    "ablation": routes_reasons.ablation,
    "faithfulness": routes_reasons.faithfulness,
    "translation": routes_translation.translation,
}

# Actions of the page: fast, never queued, without a view to export.
ACTIONS: dict[str, Route] = {
    "branch": routes_generation.branch,
    "picture": routes_attention.picture,
    "train": routes_training.train,
    "training": routes_training.training,
    "cancel-training": routes_training.cancel,
}

# Answers that arrive in pieces: `POST /api/NAME/stream`.
STREAMS: dict[str, Stream] = {"generation": routes_generation.write}
