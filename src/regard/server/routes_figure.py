"""The view of Figure 1: one sentence through every box, with some parts switched off."""

from __future__ import annotations

from regard.known import DEFAULT
from regard.server.arguments import Arguments, Payload, said
from regard.server.studio import Studio

__all__ = ["figure"]


def figure(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `target` for a translator, and `without`, the switches, such as "mask,scaling"."""
    model, text = said(arguments, "model", DEFAULT), said(arguments, "text")
    target, off = said(arguments, "target", ""), said(arguments, "without", "")
    with studio.models.use_any(model) as (network, reader):
        from regard.interpret.figure.damage import Known
        from regard.interpret.figure.figure import figure as drawn
        from regard.interpret.figure.payload import payload_of

        # The losses on the built-in sentences are computed once per model.
        known: Known = studio.models.entry(model).cached("figure", (), dict)
        found = drawn(network, reader, text, target or None, switches=off, name=model, known=known)
        # Only in the studio is there a model that could run again with other switches.
        return {**payload_of(found), "studio": "place" not in arguments}
