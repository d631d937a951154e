"""The verbs: everything Regard does for a user, each defined once in the file of its name (see `base`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.verbs.base import Verb

__all__ = ["VERBS", "find"]

# In the order of the help page. A verb's file has the verb's name.
VERBS = ("fill",)


def find(name: str) -> Verb:
    """The verb of a name that is in `VERBS`."""
    module = import_module(f"regard.verbs.{name}")
    found: Verb = getattr(module, name)
    return found
