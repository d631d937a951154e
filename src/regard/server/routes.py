"""One function per view, from the arguments sent by the page to the payload it shows; independent of HTTP."""

from __future__ import annotations

from regard.known import DEFAULT_MODEL
from regard.server import (
    routes_attention,
    routes_embeddings,
    routes_figure,
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

__all__ = ["ACTIONS", "ROUTES", "STREAMS"]


def compare(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `a`, `b` for two sentences, `model`, and `other` for a second model."""
    given = {"text": text_argument(arguments, "a"), "model": text_argument(arguments, "model", DEFAULT_MODEL)}
    optional = {"text_b": text_argument(arguments, "b", ""), "other": text_argument(arguments, "other", "").strip()}
    return answer(studio.models, "compare", {**given, **optional}).page_data()


def heads(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `texts`, one a line, and `model`."""
    given = {"text": text_argument(arguments, "texts"), "model": text_argument(arguments, "model", DEFAULT_MODEL)}
    return answer(studio.models, "heads", given).page_data()


ROUTES: dict[str, Route] = {
    "senses": routes_embeddings.senses,
    "map": routes_embeddings.sentences,
    "features": routes_embeddings.features,
    "attention": routes_attention.attention,
    "compare": compare,
    "heads": heads,
    "figure": routes_figure.figure,
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
