"""The view of Figure 1: one sentence through every box, with some parts of the model removed."""

from __future__ import annotations

from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, text_argument
from regard.server.studio import Studio
from regard.server.verbs import answer

__all__ = ["figure"]


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
