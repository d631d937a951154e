"""The knife: which heads and layers are meant by a name, and how they are taken out of a running model.

Knows encoders, their attention maps and layers. Knows no text and no answer. Layers and heads count from 0.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.models import Bert, Gpt
from regard.nn import Site
from regard.nn.masks import select_rows
from regard.wording import is_count

__all__ = ["KnockOutOnePerCopy", "parse_heads", "parse_layers", "skip_layers"]

HEAD = re.compile(r"(\d+|\*)\.(\d+|\*)")


def parse_heads(names: str, *, depth: int, heads: int) -> tuple[tuple[int, int], ...]:
    """Heads as `3.1,4.*` names them, layer and head from 0, * for all; in order and once each."""
    found: set[tuple[int, int]] = set()
    for name in (part.strip() for part in names.split(",") if part.strip()):
        match = HEAD.fullmatch(name)
        if match is None:
            raise InputError(f"a head is named {name!r}; expected LAYER.HEAD counted from 0, such as 3.1, 4.* or *.0")
        layer, head = match.groups()
        _check(f"head {name!r}: the layer", layer, depth)
        _check(f"head {name!r}: the head", head, heads)
        layers = range(depth) if layer == "*" else [int(layer)]
        found |= {(i, j) for i in layers for j in (range(heads) if head == "*" else [int(head)])}
    if not found:
        raise InputError(f"no head in {names!r}; expected such as 3.1,4.*, or nothing to try every head alone")
    return tuple(sorted(found))


def parse_layers(names: str, *, depth: int) -> tuple[int, ...]:
    """Layers as `2,3` names them, from 0; in order and once each."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    for name in found:
        if not is_count(name):
            raise InputError(f"a layer is named {name!r}; expected its number from 0, such as 2 or 2,3")
        _check("the layer", name, depth)
    if not found:
        raise InputError(f"no layer in {names!r}; expected numbers from 0, such as 2,3")
    return tuple(sorted({int(name) for name in found}))


def _check(what: str, number: str, count: int) -> None:
    if number != "*" and int(number) >= count:
        raise InputError(f"{what} is {number}, and this model has {count}: 0 to {count - 1}")


@dataclass(frozen=True)
class KnockOutOnePerCopy:
    """The edit that knocks out another head in every copy."""

    heads: Sequence[tuple[int, int]]

    def __call__(self, weights: Tensor, site: Site) -> Tensor:
        keep = torch.ones(weights.shape[:2], device=weights.device, dtype=weights.dtype)
        for copy, (layer, head) in enumerate(self.heads):
            if layer == site.layer:
                keep[copy, head] = 0
        return weights * keep[:, :, None, None]


@contextmanager
def skip_layers(encoder: Bert | Gpt, layers: Collection[int]) -> Iterator[None]:
    """Let layers hand on what they get. Hooks are shared by threads, so they ask which thread it is."""
    stack = encoder.decoder if isinstance(encoder, Gpt) else encoder.encoder
    mine = threading.get_ident()

    def hand_on(module: object, given: tuple[Any, ...], options: dict[str, Any], result: Tensor) -> Tensor:
        if threading.get_ident() != mine:
            return result
        rows = options.get("rows")
        x: Tensor = given[0]
        return x if rows is None else select_rows(x, rows)

    with ExitStack() as hooks:
        for layer in layers:
            hook = stack.layers[layer].register_forward_hook(hand_on, with_kwargs=True)
            hooks.callback(hook.remove)
        yield
