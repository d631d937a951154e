"""What the page can ask about vectors: one word in many texts, a map of sentences, the walk to a classifier.

Knows which library function makes each payload and how much text it takes. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping

from regard.errors import InputError
from regard.known import DEFAULT
from regard.studio.shelf import Shelf

__all__ = ["ROOM", "features", "senses", "sentences"]

Arguments = Mapping[str, object]
Payload = Mapping[str, object]

ROOM = 300_000  # characters of all lines
MOST = 1000  # sentences of a map: somebody waits for it


def senses(shelf: Shelf, arguments: Arguments) -> Payload:
    """Arguments: `model`, `word`, and `texts`, one a line."""
    word, texts = _said(arguments, "word"), _said(arguments, "texts")
    model = _said(arguments, "model", DEFAULT)
    with shelf.use(model) as pair:
        from regard.inside.vectors.contexts import contexts

        return contexts(pair, word, texts.splitlines()).payload(model)


def sentences(shelf: Shelf, arguments: Arguments) -> Payload:
    """Arguments: `model`, `texts` (one a line, a label behind each or none), `layer`, `pooling`, `neighbours`."""
    texts, model = _said(arguments, "texts"), _said(arguments, "model", DEFAULT)
    layer, pooling = _said(arguments, "layer", "-1"), _said(arguments, "pooling", "mean")
    count = _said(arguments, "neighbours", "5")
    if not count.isdecimal() or not 0 < int(count) <= 50:
        raise InputError(f"'neighbours' should be a number from 1 to 50, got {count!r}")
    with shelf.use(model) as pair:
        from regard.inside.vectors.chosen import read_typed
        from regard.inside.vectors.sentence_map import sentence_map

        found = sentence_map(pair, read_typed(texts), layer=layer, pooling=pooling, count=int(count), limit=MOST)
        return found.payload(model)


def features(shelf: Shelf, arguments: Arguments) -> Payload:
    """Arguments: `model`, `texts` (one a line, each with a label), `layer`, `pooling`."""
    texts, model = _said(arguments, "texts"), _said(arguments, "model", DEFAULT)
    layer, pooling = _said(arguments, "layer", "-1"), _said(arguments, "pooling", "cls")
    with shelf.use(model) as pair:
        from regard.inside.vectors.chosen import read_typed
        from regard.inside.vectors.walk import walk_payload

        return walk_payload(model, pair, read_typed(texts), layer=layer, pooling=pooling)


def _said(arguments: Arguments, name: str, default: str | None = None) -> str:
    """A text among the arguments; a blank one is the default, where there is one."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise InputError(f"{name!r} must be a text, got {'nothing' if value is None else type(value).__name__}")
    if len(value) > ROOM:
        raise InputError(
            f"{name!r} has {len(value):,} characters; the studio takes at most {ROOM:,}. For a large file run "
            "`regard map FILE --output page.html`"
        )
    if value.strip():
        return value if name in ("texts", "model") else value.strip()
    if default is None:
        raise InputError(f"{name!r} is empty; type a text")
    return default
