"""What a model does inside: its attention maps, and what can be learned from them.

Knows loaded models and what is recorded of them. Knows nothing of the command line or of how things are drawn.
Names are resolved when they are first used: some of what is here needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.interpret.attention.looking import attention as attention
    from regard.interpret.attention.maps import Attention as Attention
    from regard.interpret.attention.maps import Map as Map
    from regard.interpret.attention.maps import Side as Side
    from regard.interpret.attention.payload import attention_payload as attention_payload
    from regard.interpret.attention.subject import opened as opened
    from regard.interpret.attention.subject import picture as picture

_HOMES = {
    "Attention": "regard.interpret.attention.maps",
    "Map": "regard.interpret.attention.maps",
    "Side": "regard.interpret.attention.maps",
    "attention": "regard.interpret.attention.looking",
    "attention_payload": "regard.interpret.attention.payload",
    "opened": "regard.interpret.attention.subject",
    "picture": "regard.interpret.attention.subject",
}

__all__ = ["Attention", "Map", "Side", "attention", "attention_payload", "opened", "picture"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.interpret' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
