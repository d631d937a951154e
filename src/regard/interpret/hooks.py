"""Hooks on the modules of a model. Threads share them, so each acts in the thread that set it only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

Hook = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], Any]


@contextmanager
def forward_hooks(hooks: Iterable[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Call a hook after each of some modules, with the module, its arguments and its result.

    What a hook returns, if anything, replaces the result.
    """
    thread = threading.get_ident()

    def guard(hook: Hook) -> Hook:
        return lambda *call: hook(*call) if threading.get_ident() == thread else None

    with ExitStack() as handles:
        for module, hook in hooks:
            handles.callback(module.register_forward_hook(guard(hook), with_kwargs=True).remove)
        yield


@contextmanager
def hook_input(module: nn.Module, function: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Call `function` with the first input of a module; what it returns, if anything, replaces that input."""
    thread = threading.get_ident()

    def hook(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        changed = function(inputs[0]) if threading.get_ident() == thread else None
        return None if changed is None else (changed, *inputs[1:])

    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()
