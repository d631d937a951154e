"""A process that dies while it writes: the next action on the disk is its last, and nothing after it runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest


class Crash(BaseException):
    """The process dies here: nothing after it runs, no cleaning up either."""


def die_after(patch: pytest.MonkeyPatch, actions: int) -> None:
    """Let so many actions on the disk happen, and crash at the next one and at all behind it."""
    left = [actions]

    def dying(action: Callable[..., object]) -> Callable[..., object]:
        def act(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Crash
            return action(*arguments, **options)

        return act

    for module, name in ((os, "replace"), (os, "rename"), (os, "unlink"), (os, "fsync"), (shutil, "rmtree")):
        patch.setattr(module, name, dying(getattr(module, name)))
