"""The studio's route of Figure 1."""

from __future__ import annotations

from regard.known import DEFAULT
from regard.server.arguments import Arguments, Payload, said
from regard.server.model_registry import ModelRegistry
from regard.server.verbs import answer

__all__ = ["figure"]


def figure(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `target` for a translator, and `without`, such as "mask,scaling"."""
    given = {
        "model": said(arguments, "model", DEFAULT),
        "text": said(arguments, "text"),
        "target": said(arguments, "target", ""),
        "without": [name.strip() for name in said(arguments, "without", "").split(",") if name.strip()],
    }
    # Only in the studio is there a model that could run again without other parts.
    return {**answer(registry, "figure", given).page_data(), "studio": "place" not in arguments}
