"""What a model does inside: its attention maps, and what can be learned from them.

Knows loaded models and what is recorded of them. Knows nothing of the command line or of how things are drawn.
Names are resolved when they are first used: some of what is here needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.interpret.attention.document import attention_page_document as attention_page_document
    from regard.interpret.attention.maps import AttentionMaps as AttentionMaps
    from regard.interpret.attention.maps import AttentionRecord as AttentionRecord
    from regard.interpret.attention.maps import TokenAxis as TokenAxis
    from regard.interpret.attention.recording import record_attention as record_attention
    from regard.interpret.loading import load_model as load_model
    from regard.interpret.loading import read_image as read_image

_HOMES = {
    "Attention": "regard.interpret.attention.maps",
    "Map": "regard.interpret.attention.maps",
    "Side": "regard.interpret.attention.maps",
    "attention": "regard.interpret.attention.recording",
    "attention_payload": "regard.interpret.attention.document",
    "opened": "regard.interpret.loading",
    "picture": "regard.interpret.loading",
}

__all__ = [
    "AttentionMaps",
    "AttentionRecord",
    "TokenAxis",
    "attention_page_document",
    "load_model",
    "read_image",
    "record_attention",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.interpret' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
