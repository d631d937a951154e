"""The views of word vectors: word senses, a map of sentences, the walk to a classifier."""

from __future__ import annotations

from regard.server.arguments import Arguments, Payload
from regard.server.studio import Studio
from regard.server.verbs import answer

__all__ = ["MAX_CHARACTERS", "features", "senses", "sentences"]

MAX_CHARACTERS = 300_000  # of all lines
MAX_FEATURES = 500  # texts: each is embedded with and without a mask


def senses(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `word`, and `texts`, one per line."""
    names = ("model", "word", "texts")
    return answer(studio.models, "senses", {name: arguments[name] for name in names if name in arguments}).page_data()


def sentences(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `texts` (one per line, with or without a label), `layer`, `pooling`, `neighbors`."""
    names = ("model", "texts", "layer", "pooling", "neighbors")
    return answer(studio.models, "map", {name: arguments[name] for name in names if name in arguments}).page_data()


def features(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `texts` (one per line, each with a label), `layer`, `pooling`."""
    names = ("model", "layer", "pooling")
    given = {name: arguments[name] for name in names if name in arguments}
    given |= {"data": arguments.get("texts", ""), "rows": MAX_CHARACTERS, "limit": MAX_FEATURES}
    return answer(studio.models, "features", given).page_data()
