"""A task for worker processes without a model."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from regard.errors import InputError


class Scripted:
    """A task for workers without a model: each row is a number, or a message with which its shard fails."""

    def __init__(self, failure: str = "") -> None:
        self.failure = failure

    def __call__(self, device: torch.device) -> Any:
        if self.failure:
            raise InputError(self.failure)
        return scripted_blocks


def scripted_blocks(rows: Iterator[Any]) -> Iterator[Any]:
    for count, row in enumerate(rows):
        if row == "wait":
            time.sleep(60)
        if row == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(row, str):
            raise InputError(row) if row != "bug" else KeyError(row)
        yield {"lines": np.array([row])}
        yield count + 1
