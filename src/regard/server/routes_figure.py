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
    with studio.models.use(model) as (network, reader):
        from regard.interpret.figure.ablation import LossCache
        from regard.interpret.figure.document import figure_document
        from regard.interpret.figure.figure import draw_figure

        # The losses on the built-in sentences are computed once per model.
        losses: LossCache = studio.models.entry(model).cached("figure", dict)
        result = draw_figure(network, reader, text, target or None, without=off, name=model, loss_cache=losses)
        # Only in the studio is there a model that could run again with other switches.
        return {**figure_document(result), "studio": "place" not in arguments}
