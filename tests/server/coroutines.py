"""Runs coroutines in tests that share their process with a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def run_coroutine(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """`asyncio.run` in a thread of its own: Playwright keeps an event loop running in the main thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
