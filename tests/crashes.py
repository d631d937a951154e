"""Simulates a process that dies while it writes: it stops at a given disk operation.

`die_after` raises an exception in this process; `kill_after` kills a process that a test started.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable

import pytest

ACTIONS = ((os, "replace"), (os, "rename"), (os, "unlink"), (os, "fsync"), (shutil, "rmtree"))


class Crash(BaseException):
    """The simulated death of the process: nothing after it runs, no cleanup either."""


def die_after(patch: pytest.MonkeyPatch, actions: int) -> None:
    """Allows this many disk operations, then crashes at the next one and at every later one."""
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
    """Allows this many disk operations in this process and kills it with SIGKILL at the next one; None: never.

    Returns a function that gives the number of operations so far.
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
