"""What a model does inside: its attention maps, and what can be learned from them.

Knows loaded models and what is recorded of them. Knows nothing of the command line or of how things are drawn.
Names are resolved when they are first used: some of what is here needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.inside.looking import attention as attention
    from regard.inside.maps import Attention as Attention
    from regard.inside.maps import Map as Map
    from regard.inside.maps import Side as Side
    from regard.inside.payload import attention_payload as attention_payload
    from regard.inside.subject import opened as opened
    from regard.inside.subject import picture as picture

_HOMES = {
    "Attention": "regard.inside.maps",
    "Map": "regard.inside.maps",
    "Side": "regard.inside.maps",
    "attention": "regard.inside.looking",
    "attention_payload": "regard.inside.payload",
    "opened": "regard.inside.subject",
    "picture": "regard.inside.subject",
}

__all__ = ["Attention", "Map", "Side", "attention", "attention_payload", "opened", "picture"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.inside' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
