"""What the page can ask about Figure 1: one sentence through every box, with some parts switched off.

Knows which library function makes the payload, and keeps what was measured over sentences that do not change. Knows
nothing of HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, said
from regard.server.model_registry import ModelRegistry

if TYPE_CHECKING:
    from torch import nn

    from regard.interpret.figure.ablation import LossCache

__all__ = ["figure"]

# The studio's models do not change, so neither do their losses over our own sentences.
_known: WeakKeyDictionary[nn.Module, LossCache] = WeakKeyDictionary()


def figure(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `target` for a translator, and `without`, the switches, such as "mask,scaling"."""
    model, text = said(arguments, "model", DEFAULT_MODEL), said(arguments, "text")
    target, off = said(arguments, "target", ""), said(arguments, "without", "")
    with registry.use_any(model) as (network, reader):
        from regard.interpret.figure.document import figure_document
        from regard.interpret.figure.figure import draw_figure as drawn

        known = _known.setdefault(network, {})
        found = drawn(network, reader, text, target or None, without=off, name=model, loss_cache=known)
        # Only in the studio is there a model that could run again with other switches.
        return {**figure_document(found), "studio": "place" not in arguments}
