"""What the page can ask: one function for each view, from the arguments it sends to the payload it shows.

Knows which library function makes a payload. Knows nothing of HTTP. A new view adds a function here and its name to
`ROUTES`; `POST /api/NAME` then answers with what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from regard.errors import InputError
from regard.known import DEFAULT
from regard.studio import routes_embeddings, routes_tasks
from regard.studio.shelf import Shelf

__all__ = ["ACTIONS", "LIMIT", "ROUTES", "Arguments", "Payload", "Route", "said"]

Arguments = Mapping[str, object]
Payload = Mapping[str, object]
Route = Callable[[Shelf, Arguments], Payload]

LIMIT = 20_000  # characters of one text


def attention(shelf: Shelf, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, and `text_b` for a pair."""
    model = said(arguments, "model", default=DEFAULT)
    text, text_b = said(arguments, "text"), said(arguments, "text_b", default="")
    with shelf.use_any(model) as (network, reader):
        from regard.inside.sight.payload import attention_payload

        return attention_payload(model, network, reader, text, text_b.strip() or None)


def compare(shelf: Shelf, arguments: Arguments) -> Payload:
    """Arguments: `a`, `b` for two sentences, `model`, and `other` for a second model."""
    texts = [said(arguments, "a"), said(arguments, "b", default="")]
    names = [said(arguments, "model", default=DEFAULT), said(arguments, "other", default="").strip()]
    with ExitStack() as stack:
        # In one order for all requests: two that wait for each other's model would wait for ever.
        lent = {name: stack.enter_context(shelf.use(name)) for name in sorted({name for name in names if name})}
        from regard.inside.blanks.answers import Subject
        from regard.inside.blanks.comparison import compare_subjects

        subjects = [Subject(name, *lent[name]) for name in dict.fromkeys(names) if name]
        return compare_subjects([text for text in texts if text.strip()], subjects).payload()


def heads(shelf: Shelf, arguments: Arguments) -> Payload:
    """Arguments: `texts`, one a line, and `model`."""
    model = said(arguments, "model", default=DEFAULT)
    lines = [line for line in said(arguments, "texts").splitlines() if line.strip()]
    with shelf.use(model) as (network, tokenizer):
        from regard.inside.heads.census import again_from_lines, census, pairs_of

        found = census(network, tokenizer, pairs_of(lines), name=model)
        return found.payload(**again_from_lines(lines, model=model))


ROUTES: dict[str, Route] = {
    "senses": routes_embeddings.senses,
    "map": routes_embeddings.sentences,
    "features": routes_embeddings.features,
    "attention": attention,
    "compare": compare,
    "heads": heads,
    "tasks": routes_tasks.tasks,
}

# What the page can have done: no views, so there is nothing to export.
ACTIONS: dict[str, Route] = {
    "train": routes_tasks.train,
    "training": routes_tasks.training,
    "cancel-training": routes_tasks.cancel,
}


def said(arguments: Arguments, name: str, *, default: str | None = None) -> str:
    """A text among the arguments, checked; without a default it must be there and not be blank."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise InputError(f"{name!r} must be a text, got {'nothing' if value is None else type(value).__name__}")
    if len(value) > LIMIT:
        raise InputError(f"{name!r} has {len(value):,} characters; the studio takes at most {LIMIT:,}. Shorten it")
    if default is None and not value.strip():
        raise InputError(f"{name!r} is empty; type a text")
    return value
