"""What the page can ask: one function for each view, from the arguments it sends to the payload it shows.

Knows which library function makes a payload. Knows nothing of HTTP. A new view adds a function here and its name to
`ROUTES`; `POST /api/NAME` then answers with what it returns.
"""

from __future__ import annotations

from contextlib import ExitStack

from regard.known import DEFAULT_MODEL
from regard.server import (
    routes_attention,
    routes_embeddings,
    routes_figure,
    routes_generation,
    routes_reasons,
    routes_tasks,
    routes_translation,
)
from regard.server.arguments import Arguments, Payload, Route, said
from regard.server.model_registry import ModelRegistry
from regard.server.streaming import Stream

__all__ = ["ACTIONS", "ROUTES", "STREAMS"]


def compare(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Arguments: `a`, `b` for two sentences, `model`, and `other` for a second model."""
    texts = [said(arguments, "a"), said(arguments, "b", "")]
    names = [said(arguments, "model", DEFAULT_MODEL), said(arguments, "other", "").strip()]
    with ExitStack() as stack:
        # In one order for all requests: two that wait for each other's model would wait for ever.
        lent = {name: stack.enter_context(registry.use(name)) for name in sorted({name for name in names if name})}
        from regard.interpret.masked_lm.comparison import compare_models
        from regard.interpret.masked_lm.predictions import NamedModel

        subjects = [NamedModel(name, *lent[name]) for name in dict.fromkeys(names) if name]
        return compare_models([text for text in texts if text.strip()], subjects).payload()


def heads(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Arguments: `texts`, one a line, and `model`."""
    model = said(arguments, "model", DEFAULT_MODEL)
    lines = [line for line in said(arguments, "texts").splitlines() if line.strip()]
    with registry.use(model) as (network, tokenizer):
        from regard.interpret.heads.census import head_census, read_text_pairs, reproduce_from_lines

        found = head_census(network, tokenizer, read_text_pairs(lines), name=model)
        return found.payload(**reproduce_from_lines(lines, model=model))


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
    "ablation": routes_reasons.surgery,
    "faithfulness": routes_reasons.honesty,
    "translation": routes_translation.translation,
}

# What the page can have done: no views, so there is nothing to export.
ACTIONS: dict[str, Route] = {
    "branch": routes_generation.branch,
    "picture": routes_attention.picture,
    "train": routes_tasks.train,
    "training": routes_tasks.training,
    "cancel-training": routes_tasks.cancel,
}

# What comes in pieces: `POST /api/NAME/stream`.
STREAMS: dict[str, Stream] = {"generation": routes_generation.write}
