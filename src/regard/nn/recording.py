"""`with record(model) as tape` records attention and hidden states of a model in this thread.

The fast kernels stay in use: the tape keeps queries and keys and recomputes a map on request, so a recorded forward
pass computes the same results. Only an `edit`, which changes maps, needs the explicit path. Other threads are not
recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.nn.masks import Layout, Packed
from regard.nn.tape import NOTHING, AppliedEdits, AttentionCall, Edit, Site, Tape

if TYPE_CHECKING:
    from regard.nn.attention import Attention


class _ThreadTapes(threading.local):
    tapes: tuple[Tape, ...] = ()


_local = _ThreadTapes()


def is_recording() -> bool:
    """Whether this thread is recording."""
    return bool(_local.tapes)


def record_attention(
    module: Attention, query: Tensor, key: Tensor, queries: Packed | None, keys: Layout, bias: Tensor | None
) -> AppliedEdits | None:
    """Record a call of an attention and return the edits to apply, if any. Every attention calls this."""
    if torch.compiler.is_compiling() or not _local.tapes:
        return None
    sites = [(tape, site) for tape in _local.tapes if (site := tape.sites.get(module)) is not None]
    active = [(tape.edit, site) for tape, site in sites if tape.edit is not None]
    edits = AppliedEdits(active) if active or (sites and module.score is not None) else None
    for tape, site in sites:
        tape.calls.setdefault(site, []).append(AttentionCall(module, query, key, queries, keys, bias, edits))
    return edits


def record_hidden_state(module: nn.Module, number: int, x: Tensor, layout: Layout) -> None:
    """Record a hidden state; 0 is the embedding output. Every encoder and decoder calls this."""
    if torch.compiler.is_compiling() or not _local.tapes:
        return
    for tape in _local.tapes:
        part = tape.parts.get(module)
        if part is not None:
            tape.states.setdefault(part, {}).setdefault(number, []).append((x, layout))


@contextmanager
def record(model: nn.Module, *, edit: Edit | None = None) -> Iterator[Tape]:
    """Record the attention and hidden states of `model` in this thread; `edit` may change any attention map.

    Inside the block a compiled model runs uncompiled in this thread; other threads keep using the compiled model.
    """
    plain = getattr(model, "_orig_mod", model)
    tape = Tape(_sites(plain), _parts(plain), edit)
    if isinstance(edit, HeadAblation):
        edit.check(tape.sites)
    before = _local.tapes
    with _uncompiled(model):
        _local.tapes = (*before, tape)
        try:
            yield tape
        finally:
            _local.tapes = before
        if edit is not None and not tape.calls:
            raise RuntimeError(f"the edit was never used: the tape holds {NOTHING}")


@dataclass(frozen=True)
class HeadAblation:
    """An edit that zeroes heads; `check` raises ValueError for heads that the model does not have."""

    heads: frozenset[tuple[int, int]]
    kind: str
    part: str | None

    def __call__(self, weights: Tensor, site: Site) -> Tensor:
        ablated = [head for layer, head in self.heads if layer == site.layer]
        if not ablated or not self._applies_to(site):
            return weights
        keep = torch.ones(weights.shape[1], device=weights.device, dtype=weights.dtype)
        keep[ablated] = 0
        return weights * keep[:, None, None]

    def check(self, sites: Mapping[Attention, Site]) -> None:
        heads = {site.layer: module.heads for module, site in sites.items() if self._applies_to(site)}
        for layer, head in sorted(self.heads):
            if layer not in heads or not 0 <= head < heads[layer]:
                available = f"layers 0 to {max(heads)}, each of {heads[0]} heads from 0" if heads else "none"
                where = f"{self.kind} attention" + (f" of the {self.part}" if self.part else "")
                raise ValueError(f"no head {head} in layer {layer} to ablate: the {where} of the model has {available}")

    def _applies_to(self, site: Site) -> bool:
        return site.kind == self.kind and self.part in (None, site.part)


def ablate_heads(heads: Collection[tuple[int, int]], *, kind: str = "self", part: str | None = None) -> HeadAblation:
    """Return an edit that zeroes the attention weights of `heads`, pairs (layer, head) counted from 0."""
    for pair in heads:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"expected a list of pairs (layer, head) such as [(3, 1)]; got {pair!r} in {heads!r}")
    return HeadAblation(frozenset((layer, head) for layer, head in heads), kind, part)


def _sites(model: nn.Module) -> dict[Attention, Site]:
    """Derive sites from module paths: `decoder.layers.3.cross` is the cross-attention of layer 3 in the decoder."""
    from regard.nn.attention import Attention

    sites: dict[Attention, Site] = {}
    for path, module in model.named_modules():
        if isinstance(module, Attention):
            *above, name = path.split(".")
            layer = next((int(word) for word in reversed(above) if word.isdigit()), 0)
            sites[module] = Site(_part(path), "cross" if name == "cross" else "self", layer)
    return sites


def _part(path: str) -> str:
    first = path.split(".")[0]
    return "" if first == "layers" else first


def _parts(model: nn.Module) -> dict[nn.Module, str]:
    return {module: _part(path) for path, module in model.named_modules()}


_lock = threading.Lock()


@contextmanager
def _uncompiled(model: nn.Module) -> Iterator[None]:
    """Run compiled modules uncompiled in recording threads."""
    wrapped: list[tuple[nn.Module, str]] = []
    with _lock:
        for module in model.modules():
            if "_orig_mod" in module._modules:
                _detour(module, "forward", module._modules["_orig_mod"])
                wrapped.append((module, "forward"))
            if getattr(module, "_compiled_call_impl", None) is not None:
                _detour(module, "_compiled_call_impl", module._call_impl)
                wrapped.append((module, "_compiled_call_impl"))
    try:
        yield
    finally:
        with _lock:
            for module, name in wrapped:
                _end_detour(module, name)


class _Detour:
    """A compiled call that runs uncompiled in recording threads; counts its users."""

    def __init__(self, compiled: Any, plain: Any) -> None:
        self.compiled, self.plain, self.users = compiled, plain, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.plain if _local.tapes else self.compiled)(*args, **kwargs)


def _detour(module: nn.Module, name: str, plain: Any) -> None:
    current = module.__dict__[name]
    if not isinstance(current, _Detour):
        current = _Detour(current, plain)
        module.__dict__[name] = current
    current.users += 1


def _end_detour(module: nn.Module, name: str) -> None:
    current = module.__dict__[name]
    current.users -= 1
    if not current.users:
        module.__dict__[name] = current.compiled
