"""What the page can ask about vectors: one word in many texts, a map of sentences, the walk to a classifier.

Knows which library function makes each payload and how much text it takes. Knows nothing of HTTP.
"""

from __future__ import annotations

from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, counted, said
from regard.server.studio import Studio

__all__ = ["ROOM", "features", "senses", "sentences"]

ROOM = 300_000  # characters of all lines
MOST = 1000  # sentences of a map: somebody waits for it


def senses(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `word`, and `texts`, one a line."""
    word, texts, model = _word(arguments, "word"), _lines(arguments), said(arguments, "model", DEFAULT_MODEL)
    with studio.models.use_text_model(model) as loaded:
        pair = loaded.model, loaded.tokenizer
        from regard.interpret.embeddings.contexts import contexts

        return contexts(pair, word, texts.splitlines()).payload(model)


def sentences(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `texts` (one a line, a label behind each or none), `layer`, `pooling`, `neighbours`."""
    texts, model = _lines(arguments), said(arguments, "model", DEFAULT_MODEL)
    layer, pooling = _word(arguments, "layer", "-1"), _word(arguments, "pooling", "mean")
    count = counted(arguments, "neighbours", 5, most=50)
    with studio.models.use_text_model(model) as loaded:
        pair = loaded.model, loaded.tokenizer
        from regard.interpret.embeddings.chosen import read_typed
        from regard.interpret.embeddings.sentence_map import sentence_map

        found = sentence_map(pair, read_typed(texts), layer=layer, pooling=pooling, count=count, limit=MOST)
        return found.payload(model)


def features(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `texts` (one a line, each with a label), `layer`, `pooling`."""
    texts, model = _lines(arguments), said(arguments, "model", DEFAULT_MODEL)
    layer, pooling = _word(arguments, "layer", "-1"), _word(arguments, "pooling", "cls")
    with studio.models.use_text_model(model) as loaded:
        pair = loaded.model, loaded.tokenizer
        from regard.interpret.embeddings.chosen import read_typed
        from regard.interpret.embeddings.walk import walk_payload

        return walk_payload(model, pair, read_typed(texts), layer=layer, pooling=pooling)


def _lines(arguments: Arguments) -> str:
    return said(arguments, "texts", limit=ROOM, remedy="For a large file run `regard map FILE --output page.html`")


def _word(arguments: Arguments, name: str, default: str | None = None) -> str:
    return said(arguments, name, default).strip()
