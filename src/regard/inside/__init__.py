"""What a model does inside: its attention maps, and what can be learned from them.

Knows loaded models and what is recorded of them. Knows nothing of the command line or of how things are drawn.
Names are resolved when they are first used: some of what is here needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.inside.sight.looking import attention as attention
    from regard.inside.sight.maps import Attention as Attention
    from regard.inside.sight.maps import Map as Map
    from regard.inside.sight.maps import Side as Side
    from regard.inside.sight.payload import attention_payload as attention_payload
    from regard.inside.sight.subject import opened as opened
    from regard.inside.sight.subject import picture as picture

_HOMES = {
    "Attention": "regard.inside.sight.maps",
    "Map": "regard.inside.sight.maps",
    "Side": "regard.inside.sight.maps",
    "attention": "regard.inside.sight.looking",
    "attention_payload": "regard.inside.sight.payload",
    "opened": "regard.inside.sight.subject",
    "picture": "regard.inside.sight.subject",
}

__all__ = ["Attention", "Map", "Side", "attention", "attention_payload", "opened", "picture"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.inside' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
