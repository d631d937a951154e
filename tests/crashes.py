"""A process that dies while it writes: the next action on the disk is its last, and nothing after it runs.

`die_after` pretends to, by an exception in this process; `kill_after` ends a process that a test started for that.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable

import pytest

ACTIONS = ((os, "replace"), (os, "rename"), (os, "unlink"), (os, "fsync"), (shutil, "rmtree"))


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

    for module, name in ACTIONS:
        patch.setattr(module, name, dying(getattr(module, name)))


def kill_after(actions: int | None) -> Callable[[], int]:
    """Let so many actions on the disk happen in this process, and end it with SIGKILL at the next one; None: never.

    Returns what tells how many there were so far.
    """
    count = [0]

    def counting(action: Callable[..., object]) -> Callable[..., object]:
        def act(*arguments: object, **options: object) -> object:
            if count[0] == actions:
                os.kill(os.getpid(), signal.SIGKILL)
            count[0] += 1
            return action(*arguments, **options)

        return act

    for module, name in ACTIONS:
        setattr(module, name, counting(getattr(module, name)))
    return lambda: count[0]
