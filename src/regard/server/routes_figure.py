"""The view of Figure 1: one sentence through every box, with some parts of the model removed."""

from __future__ import annotations

from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, said
from regard.server.studio import Studio
from regard.server.verbs import answer

__all__ = ["figure"]


def figure(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `target` for a translator, and `without`, such as "mask,scaling"."""
    given = {
        "model": said(arguments, "model", DEFAULT_MODEL),
        "text": said(arguments, "text"),
        "target": said(arguments, "target", ""),
        "without": [name.strip() for name in said(arguments, "without", "").split(",") if name.strip()],
    }
    # Only in the studio is there a model that could run again without other parts.
    return {**answer(studio.models, "figure", given).page_data(), "studio": "place" not in arguments}
